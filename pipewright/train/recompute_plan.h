#pragma once

#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/ir/program.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

/// Says what the stages do with their layers for a micro-batch that is recomputed, by the
/// strategy's mode: `shared->recompute` and `shared->offload`. `program`: the schedule's; where a
/// stage holds one micro-batch at a time, its last block is not run again.
void plan_recompute(const Strategy& strategy, const Program& program, SharedModel* shared);

}  // namespace pipewright
