#pragma once

#include <map>
#include <string>

#include "pipewright/checkpoint/reader.h"
#include "pipewright/optim/optimizer_state.h"
#include "pipewright/train/exchange.h"
#include "pipewright/train/fit.h"
#include "pipewright/train/training.h"

namespace pipewright {

/// Tensors and numbers on their way into a Training: first all is read and checked, which may fail
/// and changes nothing; then apply() puts it there. All processes of a run do it together.
class Restore {
 public:
  Restore(Training* training, Exchange* exchange) : training_(training), exchange_(exchange) {}

  /// Reads weights alone. Throws InvalidArgument listing what does not fit.
  Loaded read_weights(const TensorSet& set, const LoadOptions& options, const std::string& path);

  /// Reads all of a checkpoint. What is not used as it was saved goes to `notes`.
  void read_checkpoint(const Checkpoint& checkpoint, std::vector<std::string>* notes);

  /// Puts what was read where it belongs.
  void apply();

 private:
  using ByName = std::map<std::string, torch::Tensor>;

  void read_weights_here(const Fit& fit, const TensorSet& set);
  void check_position(const std::string& path, std::vector<std::string>* notes) const;
  void read_optimizer(const TensorSet& set, const std::vector<std::string>& types);
  void read_merged(const TensorSet& set, const std::string& use);
  void read_states(int stage, const TensorSet& set, const std::vector<std::string>& types);
  void apply_weights() const;
  void apply_stage(int stage);

  Training* training_;
  Exchange* exchange_;
  ByName weights_;
  bool is_whole_ = false;  // not the weights alone
  RunPosition position_;
  std::vector<std::map<std::string, OptimizerState>> states_;  // by stage, by parameter
  ByName gradients_;                                           // of a merge under way, by use
};

}  // namespace pipewright
