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
#include "pipewright/train/checkpoint.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

struct StepResult {
  std::int64_t step = 0;  // which one it is of; the first is 0
  /// Of an asynchronous schedule: nothing is known yet, results come some calls later.
  bool pending = false;
  double loss = 0;    // mean over the mini-batch's weight
  double weight = 0;  // samples, or unmasked tokens
  double seconds = 0;
  int micro_batches = 0;    // fewer than asked for where the batch has fewer rows
  bool updated = false;     // the optimizer ran (with gradient merge: every so many steps)
  bool skipped = false;     // it should have, but a gradient overflowed: nothing has changed
  bool stop_asked = false;  // by ask_to_stop() in any process; the same in all of them
  double gradient_norm =
      0;                  // before clipping; 0 where neither clipping nor loss scaling asks for it
  double loss_scale = 1;  // that this step ran with
  /// Measured, with the bytes each rank held; of this replica. Of an asynchronous schedule its time
  /// goes on from step to step until the pipeline is drained, and peak_bytes are of all that time.
  Timeline timeline;
  /// The most bytes of tensors at any time of the step: parameters, gradients, optimizer state,
  /// activations, temporaries.
  std::vector<std::int64_t> peak_bytes;        // by rank, of this replica
  std::vector<std::int64_t> stage_peak_bytes;  // by stage; a rank's chunks peak at different times
  /// Of an asynchronous schedule, by rank: versions of its weights that it held, the most at a
  /// time.
  std::vector<std::int64_t> versions = {};
};

/// Trains a Sequence over a pipeline: of threads in this process, or of processes, each of which
/// makes the same trainer and calls it with the same batches. The model's modules are used as they
/// are, on the threads of the ranks while a call runs and by nobody meanwhile; between calls they
/// are the caller's. A process keeps the modules of its own stages and lets go of the others.
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

  /// Of an asynchronous schedule ("pipedream", "pipedream-2bw"), whose step() hands a mini-batch
  /// over and returns what is known of an earlier one: does what is left of those under way and
  /// returns the results that step() has not, in order. All other calls do it first, and keep those
  /// results for later. Between step() and drain() the model's modules are not the caller's. Of
  /// other schedules: nothing.
  std::vector<StepResult> drain();

  /// The gradients of a step without the update: they are in the parameters' .grad afterwards.
  StepResult gradients(const Batch& batch);

  /// Loss without gradients, in eval mode; the modules' modes are put back.
  StepResult evaluate(const Batch& batch);

  /// Outputs of the last layer for all rows, in eval mode, in every process; where the last stage
  /// is another one's, on the CPU. `shared_inputs`: as in Batch.
  Tensors predict(const Tensors& inputs, const std::vector<char>& shared_inputs = {});

  /// Has the next step tell all processes that one of them wants to end, on Ctrl-C say: they learn
  /// it at the same step, and so end, or save, together. From any thread; holds until it was told.
  void ask_to_stop();

  /// What every process gives, in all of them, by rank; of one process its own. For what a metric
  /// or a log needs of the others: small things, it travels as text. All processes call it, in the
  /// same order. Throws TransportError where one does not come.
  std::vector<nlohmann::json> gather(const nlohmann::json& own);

  /// Called after every step(), on the caller's thread, in the order given.
  void after_step(std::function<void(const StepResult&)> callback);

  // Checkpoints, see docs/checkpoints.md. Of several processes all make the same calls in the same
  // order, with the same folder, which must be one that all of them see.

  /// Saves the run as it stands into a folder of `dir` and returns its path: weights, buffers,
  /// optimizer, gradients merged so far, counters, seed, loss scale, and the caller's state. Copies
  /// them into the host's memory; the writing goes on beside the training, and waits for that of
  /// the save before. Throws what that save failed with, and then saves nothing; InvalidArgument
  /// for what cannot be saved.
  std::string save(const std::string& dir, SaveOptions options = {});

  /// Returns when the last save is whole. Throws StorageError where the disk refused it, Error or
  /// TransportError where another process failed; then the checkpoints before it are as they were,
  /// and training may go on.
  void wait_for_save();

  /// Continues from the newest whole checkpoint of `dir`, whatever the number of ranks that saved
  /// it: the steps that follow are, bit for bit, those of a run that never stopped. Where there is
  /// none, says so and changes nothing. Throws InvalidArgument where it is not of this model or of
  /// another optimizer, listing what does not fit; then too nothing has changed.
  Resumed resume(const std::string& dir);

  /// Takes the weights and buffers of a .safetensors file or of a folder in Hugging Face's layout,
  /// whoever wrote them; floats of another size are converted. Optimizer and counters stay. Throws
  /// InvalidArgument listing what is missing, unexpected or of another shape; then nothing has
  /// changed.
  Loaded load_weights(const std::string& path, const LoadOptions& options = {});

  /// Writes them: one file where `path` ends with .safetensors, else a new folder of files, which
  /// several processes need. `names`: what the file is to call them, for programs that know them by
  /// other names. Returns when all of it is on the disk.
  void save_weights(const std::string& path, const NamesInFile& names = {});

  const Sequence& model() const;
  /// Layers by stage.
  const std::vector<int>& sizes() const;
  /// By stage: what is kept and run again of a micro-batch that is recomputed, and whether what is
  /// kept lies in the host's memory. Of recompute = kNone: nothing is.
  const std::vector<std::vector<Operation>>& operations() const;
  const std::vector<char>& offload() const;
  std::int64_t num_steps() const;
  std::int64_t num_updates() const;
  /// All optimizers, by stage; null where a stage has nothing to learn.
  std::vector<torch::optim::Optimizer*> optimizers();
  /// Every parameter and buffer by name, in layer order; of several processes those of its stages.
  std::vector<std::pair<std::string, torch::Tensor>> state_dict() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pipewright
