#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/optim/optimizer.h"

namespace pipewright {

/// The parameters of all stages, their gradients and optimizers. A stage owns the parameters that
/// it uses first. Calls for different stages may come at the same time, each from the thread of
/// the stage's rank, with its stream.
class Updater {
 public:
  Updater(SharedModel& shared, const OptimizerFactory& factory);

  /// Makes a stage's gradients final: uses of tied weights summed in layer order, all multiplied
  /// with `factor`. Every backward of every rank must be done.
  void finish_gradients(int stage, double factor);

  /// Takes the norms of a stage's gradients, for total_norm().
  void measure(int stage);

  /// Of all stages' gradients, in parameter order whatever the partition. All must have been
  /// measured.
  double total_norm() const;

  /// Throws Error naming a stage's first parameter whose gradient has a nan or an infinity.
  void check_finite(int stage) const;

  void scale(int stage, double factor);

  /// The optimizer of one stage, with the learning rates it was made with times `rate`, or, without
  /// one, with those it has. Its gradients are then gone.
  void step(int stage, std::optional<double> rate);

  void clear(int stage);
  void clear_all();

  std::vector<torch::optim::Optimizer*> optimizers();
  const Parameters& parameters(int stage) const {
    return parameters_[static_cast<std::size_t>(stage)];
  }

 private:
  struct Rated {
    std::unique_ptr<torch::optim::Optimizer> optimizer;  // null: nothing to learn
    std::vector<double> rates;                           // by group, as it was made
  };

  SharedModel* shared_;
  std::vector<Parameters> parameters_;              // by stage
  std::vector<Rated> optimizers_;                   // by stage
  std::vector<std::vector<double>> squared_norms_;  // by stage, by parameter
};

}  // namespace pipewright
