#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/optim/optimizer.h"
#include "pipewright/trace/timeline.h"
#include "pipewright/train/batch.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

struct StepResult {
  double loss = 0;    // mean over the mini-batch's weight
  double weight = 0;  // samples, or unmasked tokens
  double seconds = 0;
  int micro_batches = 0;  // fewer than asked for where the batch has fewer rows
  bool updated = false;   // the optimizer ran (with gradient merge: every so many steps)
  bool skipped = false;   // it should have, but a gradient overflowed: nothing has changed
  double gradient_norm =
      0;                  // before clipping; 0 where neither clipping nor loss scaling asks for it
  double loss_scale = 1;  // that this step ran with
  Timeline timeline;      // measured, with the bytes each rank held
  /// The most bytes of tensors at any time of the step: parameters, gradients, optimizer state,
  /// activations, temporaries.
  std::vector<std::int64_t> peak_bytes;        // by rank
  std::vector<std::int64_t> stage_peak_bytes;  // by stage; a rank's chunks peak at different times
};

/// Trains a Sequence over a pipeline of threads in this process. The model's modules are used as
/// they are, on the threads of the ranks while a call runs and by nobody meanwhile; between calls
/// they are the caller's.
class Trainer {
 public:
  /// Moves the model to the strategy's devices. Throws InvalidArgument for a strategy that does not
  /// fit the model.
  Trainer(Sequence model, Loss loss, const OptimizerFactory& optimizer, Strategy strategy);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One step: the gradients of the whole mini-batch, and the update. Throws InvalidArgument for a
  /// batch that makes no sense, StageError where a layer, the loss or the optimizer threw or the
  /// loss is not a number, OutOfMemory; after that, the trainer may be used again: nothing of the
  /// failed step stays but, where an optimizer threw, its update.
  StepResult step(const Batch& batch);

  /// The gradients of a step without the update: they are in the parameters' .grad afterwards.
  StepResult gradients(const Batch& batch);

  /// Loss without gradients, in eval mode; the modules' modes are put back.
  StepResult evaluate(const Batch& batch);

  /// Outputs of the last layer for all rows, in eval mode. `shared_inputs`: as in Batch.
  Tensors predict(const Tensors& inputs, const std::vector<char>& shared_inputs = {});

  /// Called after every step(), on the caller's thread, in the order given.
  void after_step(std::function<void(const StepResult&)> callback);

  const Sequence& model() const;
  /// Layers by stage.
  const std::vector<int>& sizes() const;
  std::int64_t num_steps() const;
  std::int64_t num_updates() const;
  /// All optimizers, by stage; null where a stage has nothing to learn.
  std::vector<torch::optim::Optimizer*> optimizers();
  /// Every parameter and buffer by name, in layer order.
  std::vector<std::pair<std::string, torch::Tensor>> state_dict() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pipewright
