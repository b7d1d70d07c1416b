#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/trace/timeline.h"
#include "pipewright/train/batch.h"
#include "pipewright/train/strategy.h"
#include "pipewright/train/updater.h"

namespace pipewright {

struct StepResult {
  double loss = 0;    // mean over the mini-batch's weight
  double weight = 0;  // samples, or unmasked tokens
  double seconds = 0;
  int micro_batches = 0;     // fewer than asked for where the batch has fewer rows
  bool updated = false;      // the optimizer ran (with gradient merge: every so many steps)
  double gradient_norm = 0;  // before clipping; 0 where clipping is off
  Timeline timeline;
};

/// Trains a Sequence over a pipeline of threads in this process. The model's modules are used as
/// they are, on the threads of the ranks while a call runs and by nobody meanwhile; between calls
/// they are the caller's.
class Trainer {
 public:
  /// Throws InvalidArgument for a strategy that does not fit the model.
  Trainer(Sequence model, Loss loss, const OptimizerFactory& optimizer, Strategy strategy);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One step: the gradients of the whole mini-batch, and the update. Throws InvalidArgument for a
  /// batch that makes no sense, StageError where a layer, the loss or the optimizer threw; after
  /// that, the trainer may be used again: nothing of the failed step stays but, where an optimizer
  /// threw, its update.
  StepResult step(const Batch& batch);

  /// The gradients of a step without the update: they are in the parameters' .grad afterwards.
  StepResult gradients(const Batch& batch);

  /// Loss without gradients, in eval mode; the modules' modes are put back.
  StepResult evaluate(const Batch& batch);

  /// Outputs of the last layer for all rows, in eval mode.
  Tensors predict(const Tensors& inputs);

  const Sequence& model() const;
  /// Layers by stage.
  const std::vector<int>& sizes() const;
  std::int64_t num_steps() const;
  /// All optimizers, by stage; null where a stage has nothing to learn. For learning-rate
  /// schedules.
  std::vector<torch::optim::Optimizer*> optimizers();
  /// Every parameter and buffer by name, in layer order.
  std::vector<std::pair<std::string, torch::Tensor>> state_dict() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pipewright
