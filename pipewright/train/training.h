#pragma once

#include <optional>
#include <vector>

#include "pipewright/train/memory_report.h"
#include "pipewright/train/pipeline.h"
#include "pipewright/train/trainer.h"
#include "pipewright/train/updater.h"

namespace pipewright {

/// What stands behind a Trainer: the model laid out over a pipeline, and what a step does with it.
class Training {
 public:
  Training(Sequence model, Loss loss, const OptimizerFactory& factory, Strategy strategy);

  /// One step of a kind; counts it unless it is kForward.
  StepResult run(const Batch& batch, StepKind kind);

  /// Of the last kForward: by micro-batch.
  std::vector<Tensors> take_outputs();

  const Sequence& model() const { return model_; }
  const Strategy& strategy() const { return strategy_; }
  const std::vector<int>& sizes() const { return sizes_; }
  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_updates() const { return num_updates_; }
  Updater& updater() { return updater_; }
  /// The next step is the one that updates.
  bool completes_merge() const { return num_merged_ + 1 == strategy_.merge_steps; }

 private:
  SharedModel lay_out(Loss loss);
  StepInput make_input(const Batch& batch, StepKind kind) const;
  void check_results(StepKind kind);
  void finish_mini_batch(StepKind kind);
  void count(StepKind kind);
  void abandon();

  // On the threads of the ranks, from STEP.
  double update(int stage);
  double prepare_update(RankRunner& rank, int number);
  double meet();
  void announce_gradients(RankRunner& rank, int number);
  void wait_for_gradients(RankRunner& rank, int number);
  bool limit_gradients(RankRunner& rank, double* waited);

  const std::map<int, LossValue>& losses() const;
  double total_weight() const;
  double weight_correction() const;
  void check_loss() const;

  Sequence model_;
  Strategy strategy_;
  std::vector<int> sizes_;
  SharedModel shared_;
  Updater updater_;
  Pipeline pipeline_;
  MemoryReport memory_;
  std::optional<LossScaler> scaler_;
  StageRunner* last_stage_ = nullptr;
  bool has_norms_ = false;

  std::int64_t num_steps_ = 0;
  std::int64_t num_updates_ = 0;
  int num_merged_ = 0;

  // Of the step in hand.
  double expected_weight_ = 1;                      // that gradients were divided by
  double loss_scale_ = 1;                           // and multiplied by
  double gradient_norm_ = 0;                        // written by rank 0
  std::vector<char> skips_;                         // by rank: all come to the same
  std::vector<std::vector<c10::Event>> announced_;  // by rank: its backwards are done
};

}  // namespace pipewright
