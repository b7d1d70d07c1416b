#pragma once

#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/nn/outline.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

/// How many layers each of `num_stages` stages has: as the strategy says, as the stage guards say,
/// or with the least bottleneck of cost hints (where every layer has one) or of parameters. Throws
/// InvalidArgument.
std::vector<int> stage_sizes(const Sequence& model, const Outline& outline,
                             const Strategy& strategy, int num_stages);

/// Where each stage runs: as its guard says, as the strategy says, or where its parameters are.
/// Throws InvalidArgument for a device that does not exist or two where one is needed.
std::vector<torch::Device> stage_devices(const Sequence& model, const Outline& outline,
                                         const Strategy& strategy, const StageLayout& layout);

}  // namespace pipewright
