#pragma once

#include <vector>

#include "pipewright/nn/sequence.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

/// How many layers each of `num_stages` stages has: as the strategy says, as the stage guards say,
/// or with the least bottleneck of cost hints (where every layer has one) or of parameters. Throws
/// InvalidArgument.
std::vector<int> stage_sizes(const Sequence& model, const Strategy& strategy, int num_stages);

}  // namespace pipewright
