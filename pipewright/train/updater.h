#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pipewright/exec/meeting.h"
#include "pipewright/exec/stage_runner.h"

namespace pipewright {

/// Makes the optimizer of a stage over the parameters it owns. LBFGS is refused: it wants to call
/// the model.
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> parameters)>;

/// The parameters of all stages, their gradients and optimizers. A stage owns the parameters that
/// it uses first. Calls for different ranks may come at the same time, each from its rank's thread.
class Updater {
 public:
  Updater(SharedModel& shared, const OptimizerFactory& factory);

  /// Makes the gradients of a rank's stages final: uses of tied weights summed in layer order, all
  /// multiplied with `factor`. Every backward of every rank must be done.
  void finish_gradients(const std::vector<int>& stages, double factor);

  /// Scales the gradients of a rank's stages so that the norm over all ranks' parameters, taken in
  /// parameter order whatever the partition, is at most `most`; returns the norm. All ranks call
  /// it; they meet.
  double clip(const std::vector<int>& stages, double most, Meeting* meeting);

  /// The optimizer of one stage; its gradients are then gone.
  void step(int stage);

  void clear_gradients();
  std::vector<torch::optim::Optimizer*> optimizers();

 private:
  Tensors& parameters(int stage) { return parameters_[static_cast<std::size_t>(stage)]; }
  void scale(int stage, double factor);

  SharedModel* shared_;
  std::vector<Tensors> parameters_;  // by stage
  std::vector<std::unique_ptr<torch::optim::Optimizer>>
      optimizers_;                                  // by stage; null: nothing to learn
  std::vector<std::vector<double>> squared_norms_;  // by stage, by parameter
};

}  // namespace pipewright
