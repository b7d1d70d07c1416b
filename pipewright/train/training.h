#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "pipewright/train/flight.h"
#include "pipewright/train/lane_step.h"
#include "pipewright/train/memory_report.h"
#include "pipewright/train/pipeline.h"
#include "pipewright/train/reducer.h"
#include "pipewright/train/tensor_names.h"
#include "pipewright/train/trainer.h"
#include "pipewright/train/updater.h"

namespace pipewright {

/// Where a run stands, beside its tensors.
struct RunPosition {
  std::int64_t num_steps = 0;
  std::int64_t num_updates = 0;
  int num_merged = 0;  // steps of the merge under way
  int replicas = 1;    // each with its own sum of that merge
  std::uint64_t seed = 0;
  std::optional<LossScaler::State> scaler = {};
};

/// What stands behind a Trainer: the model laid out over a pipeline, and what a step does with it.
class Training {
 public:
  Training(Sequence model, Loss loss, const OptimizerFactory& factory, Strategy strategy);

  ~Training();
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  Training(Training&&) = delete;
  Training& operator=(Training&&) = delete;

  /// One step of a kind; counts it unless it is kForward.
  StepResult run(const Batch& batch, StepKind kind);

  // Of asynchronous schedules.
  bool asynchronous() const { return asynchronous_; }
  /// Hands a mini-batch over; returns the result of an earlier one, or that it is pending.
  StepResult fly(const Batch& batch, StepKind kind);
  /// Does what is left of the mini-batches under way. Everything else that touches the model, or
  /// the run's position, comes after it.
  void drain();
  /// The same; and the results that fly() has not returned.
  std::vector<StepResult> take_results();

  void ask_to_stop() { stop_asked_ = true; }

  /// Of the last kForward: by micro-batch.
  std::vector<Tensors> take_outputs();
  /// Those of the last stage in every process of the pipeline; all call it.
  Tensors share_outputs(Tensors outputs);

  const Sequence& model() const { return model_; }
  /// Every parameter and buffer of this process's stages by name, in layer order. A tied weight has
  /// the name of its first use, wherever that is.
  std::vector<std::pair<std::string, torch::Tensor>> state() const {
    return tensor_names_.all(model_);
  }
  const Strategy& strategy() const { return strategy_; }
  const std::vector<int>& sizes() const { return sizes_; }
  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_updates() const { return num_updates_; }
  Updater& updater() { return updater_; }
  /// The next step is the one that updates.
  bool completes_merge() const { return num_merged_ + 1 == strategy_.merge_steps; }

  // For checkpoints. No step may be running.
  RunPosition position() const;
  void set_position(const RunPosition& position);
  const Grid& grid() const { return grid_; }
  SharedModel& shared() { return shared_; }
  Pipeline& pipeline() { return pipeline_; }
  const TensorNames& tensor_names() const { return tensor_names_; }
  const OptimizerFactory& factory() const { return factory_; }

 private:
  SharedModel lay_out(Loss loss);
  StepInput make_input(const Batch& batch, StepKind kind) const;
  void run_micro_batches(StepKind kind, const StepInput& input, Timeline* timeline);
  void check_results(StepKind kind);
  void finish_mini_batch(StepKind kind);
  void join_replicas();
  void exchange_norms();
  Pipeline::Calls calls();
  void count(StepKind kind);
  void abandon(const std::string& why);
  void gather_totals(StepKind kind, double started, StepResult* result);

  // Of asynchronous schedules.
  [[noreturn]] void refuse_asynchronous(const std::string& why) const;
  void check_asynchronous() const;
  void check_asynchronous_model(const Outline& outline, const StageLayout& layout) const;
  void take_off();
  void take_piece();
  StepReport report(RankRunner& rank, const Piece& piece);
  StepResult result_of(const Piece& piece);
  double update_delayed(int stage, int version);

  // On the threads of the ranks, from STEP.
  double update(int stage, int version);
  void step_optimizer(int stage, std::int64_t number);
  double prepare_update(RankRunner& rank, int number);
  std::vector<std::vector<double>> share(int number, Sharing::Topic topic,
                                         std::vector<double> numbers, double* waited);
  /// Makes a stage's gradients final: over uses, over replicas, times `factor`.
  void finish_gradients(int stage, double factor);
  void gather_tied(int number);
  void spread_tied(int number);
  void announce_gradients(RankRunner& rank, int number);
  void wait_for_gradients(RankRunner& rank, int number);
  bool limit_gradients(RankRunner& rank, int number, double* waited);
  double total_norm(const std::vector<std::vector<double>>& squares) const;

  double weight_here() const;
  double weight_correction(double weight) const;
  void check_loss() const;
  bool skipped() const { return skips_[static_cast<std::size_t>(grid_.first_here())] != 0; }

  Sequence model_;
  Strategy strategy_;
  Grid grid_;
  std::vector<int> sizes_;
  TensorNames tensor_names_;
  OptimizerFactory factory_;
  bool asynchronous_ = false;  // lay_out() finds it
  SharedModel shared_;
  Updater updater_;
  std::unique_ptr<Replicas> replicas_;              // null: this is the only one
  std::vector<std::unique_ptr<Reducer>> reducers_;  // by stage; null: not here, or no replicas
  Pipeline pipeline_;
  MemoryReport memory_;
  std::optional<LossScaler> scaler_;
  StageRunner* last_stage_ = nullptr;  // null: another process has it
  bool has_norms_ = false;
  std::optional<LaneStep> lanes_;  // that run the micro-batches

  std::unique_ptr<Flight> flight_;   // null: nothing is under way
  std::deque<StepResult> finished_;  // not yet returned
  double flight_started_ = 0;        // on the clock of the day
  double last_end_ = 0;              // of the pieces before, in the time of the flight
  std::int64_t first_update_ = 0;    // of the flight
  int flight_depth_ = 0;

  std::int64_t num_steps_ = 0;
  std::int64_t num_updates_ = 0;
  int num_merged_ = 0;
  std::atomic<bool> stop_asked_{false};

  // Of the step in hand.
  double expected_weight_ = 1;                      // that gradients were divided by
  double loss_scale_ = 1;                           // and multiplied by
  double loss_sum_ = 0;                             // of all micro-batches, known at the end
  double weight_ = 0;                               // likewise
  double gradient_norm_ = 0;                        // written by the first rank here
  std::vector<char> skips_;                         // by rank: all come to the same
  std::vector<std::vector<c10::Event>> announced_;  // by rank: its backwards are done
};

}  // namespace pipewright
