#pragma once

#include "pipewright/optim/optimizer.h"

namespace pipewright {

/// torch::optim::Adam, its state and its options, whose step on GPUs is one kernel over all
/// parameters where LibTorch has it (2.x) instead of ten for each.
class FusedAdam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;

  torch::Tensor step(LossClosure closure = nullptr) override;
};

/// Makes FusedAdam for a stage's parameters.
OptimizerFactory adam(const torch::optim::AdamOptions& options);

}  // namespace pipewright
