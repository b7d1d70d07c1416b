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
  /// `replica` of `shards`: each has the optimizer of its share of a stage's parameters.
  Updater(SharedModel& shared, const OptimizerFactory& factory, int replica, int shards);

  /// Sums the uses of a stage's tied weights in layer order. Every backward of every rank must be
  /// done.
  void sum_tied(int stage);

  /// The parameters of a stage that several layers use, and the others.
  Parameters tied(int stage) const { return chosen(stage, true); }
  Parameters untied(int stage) const { return chosen(stage, false); }

  /// What a replica's optimizer updates.
  Tensors shard(int stage, int replica) const;

  /// Takes the squared norms of a stage's gradients.
  void measure(int stage);

  /// As measured, by parameter.
  const std::vector<double>& squared_norms(int stage) const {
    return squared_norms_[static_cast<std::size_t>(stage)];
  }

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
  Parameters chosen(int stage, bool tied) const;
  Parameters shard_parameters(std::size_t stage, int replica) const;

  struct Rated {
    std::unique_ptr<torch::optim::Optimizer> optimizer;  // null: nothing to learn
    std::vector<double> rates;                           // by group, as it was made
  };

  SharedModel* shared_;
  int shards_;
  std::vector<Parameters> parameters_;              // by stage
  std::vector<Rated> optimizers_;                   // by stage
  std::vector<std::vector<double>> squared_norms_;  // by stage, by parameter
};

}  // namespace pipewright
