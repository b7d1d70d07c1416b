#pragma once

#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/ir/program.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

/// What is done with the layers of each stage for a micro-batch that is recomputed, by the
/// strategy's mode. `program`: the schedule's; where a stage holds one micro-batch at a time, its
/// last block is not run again.
std::vector<std::vector<Operation>> recompute_operations(const Sequence& model,
                                                         const Strategy& strategy,
                                                         const StageLayout& layout,
                                                         const Program& program);

}  // namespace pipewright
