#pragma once

#include <memory>
#include <string>

#include "pipewright/exec/lanes.h"
#include "pipewright/train/pipeline.h"

namespace pipewright {

/// Throws InvalidArgument for a strategy whose `lanes` do not go with the rest of it.
void check_lanes(const Strategy& strategy);

/// A step's gradients by lanes instead of the rank's list: its micro-batches beside each other.
class LaneStep {
 public:
  /// The model is one stage of one rank, which `pipeline` runs updates and forwards on.
  LaneStep(SharedModel* shared, const Strategy& strategy, Pipeline* pipeline);

  /// Leaves gradients and losses where the rank's own backwards would.
  void run(const StepInput& input, Timeline* timeline);

  /// Calls `update` for the stage, on the rank's thread.
  void step(const std::function<void(int stage)>& update);

 private:
  torch::Tensor& place_of(const torch::Tensor& parameter);

  SharedModel* shared_;
  Pipeline* pipeline_;
  std::unique_ptr<Lanes> lanes_;
};

}  // namespace pipewright
