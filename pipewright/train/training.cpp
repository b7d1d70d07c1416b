#include "pipewright/train/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/nn/outline.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/torch/compat.h"
#include "pipewright/train/agreement.h"
#include "pipewright/train/layout.h"
#include "pipewright/train/recompute_plan.h"
#include "pipewright/train/step_report.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

void check_strategy(const Strategy& s) {
  if (s.ranks < 1) refuse(fmt::format("ranks = {}; use 1 or more", s.ranks));
  if (s.micro_batches < 1)
    refuse(fmt::format("micro_batches = {}; use 1 or more", s.micro_batches));
  if (s.threads_per_rank < 0)
    refuse(fmt::format("threads_per_rank = {}; use 0 (a fair share) or more", s.threads_per_rank));
  if (s.recompute_every < 1)
    refuse(fmt::format("recompute_every = {}; use 1 or more", s.recompute_every));
  if (s.replicas < 1) refuse(fmt::format("replicas = {}; use 1 or more", s.replicas));
  if (s.merge_steps < 1) refuse(fmt::format("merge_steps = {}; use 1 or more", s.merge_steps));
  if (!(s.clip_norm >= 0)) refuse(fmt::format("clip_norm = {}; use 0 (off) or more", s.clip_norm));
  if (!(s.deadline_seconds > 0))
    refuse(fmt::format("deadline_seconds = {}; use more than 0", s.deadline_seconds));
  if (find_schedule(s.schedule).forward_only)
    refuse(fmt::format("schedule '{}' trains nothing", s.schedule));
  if (s.vertical_sync && !has_vertical_sync(s.schedule))
    refuse(fmt::format("vertical_sync is of schedule 'pipedream', not of '{}'", s.schedule));
  check_lanes(s);
}

void check_precision(const Strategy& strategy, const StageLayout& layout) {
  if (strategy.precision != Precision::kFp16 || compat::kCpuRunsHalf) return;
  for (const auto& device : layout.devices) {
    if (device.is_cpu())
      refuse("precision = kFp16 does not run on the CPU with this LibTorch; use kBf16");
  }
}

/// A process has the layers of its own stages alone. They are made one by one where they run: the
/// memory of the host never holds more than one that belongs to another device.
void take_own_layers(const Grid& grid, const StageLayout& layout, Sequence* model) {
  for (std::size_t i = 0; i < model->size(); ++i) {
    const int stage = layout.stage_of(i);
    if (!grid.here(layout.rank_of(stage))) {
      model->release(i);
      continue;
    }
    model->build(i);
    const auto& module = model->layers()[i].module;
    if (module) module->to(layout.device_of(stage));
  }
}

/// The one clock that processes share, for what is drawn.
double day_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// This replica's micro-batches of all; they differ by at most one in number.
void keep_share(const Grid& grid, StepInput* input) {
  const int all = static_cast<int>(input->inputs.size());
  const int each = all / grid.replicas;
  const int more = all % grid.replicas;  // the first replicas have one more
  const int first = grid.replica * each + std::min(grid.replica, more);
  const int last = first + each + (grid.replica < more ? 1 : 0);
  const auto keep = [&](auto* list) {
    if (list->empty()) return;
    *list = {list->begin() + first, list->begin() + last};
  };
  keep(&input->inputs);
  keep(&input->targets);
  keep(&input->weights);
  input->first_micro_batch = first;
}

}  // namespace

Training::Training(Sequence model, Loss loss, const OptimizerFactory& factory, Strategy strategy)
    : model_(std::move(model)),
      strategy_(std::move(strategy)),
      factory_(factory),
      shared_(lay_out(std::move(loss))),
      updater_(shared_, factory, grid_.replica, strategy_.shard_optimizer ? grid_.replicas : 1),
      pipeline_(shared_, strategy_, grid_, calls()),
      memory_(shared_, pipeline_),
      skips_(static_cast<std::size_t>(grid_.ranks)),
      announced_(static_cast<std::size_t>(grid_.ranks)) {
  if (grid_.replicas > 1) join_replicas();
  if (strategy_.scale_loss.value_or(strategy_.precision == Precision::kFp16))
    scaler_.emplace(strategy_.loss_scaling);
  for (const auto& rank : pipeline_.ranks()) {
    for (const auto& stage : rank->stages()) {
      has_norms_ = has_norms_ || stage->has_norms();
      if (stage->stage() + 1 == shared_.layout.num_stages()) last_stage_ = stage.get();
    }
  }
  if (strategy_.lanes > 0) lanes_.emplace(&shared_, strategy_, &pipeline_);
}

SharedModel Training::lay_out(Loss loss) {
  check_strategy(strategy_);
  asynchronous_ = find_schedule(strategy_.schedule).asynchronous;
  if (asynchronous_) check_asynchronous();
  model_.check();
  grid_ = make_grid(strategy_);
  if (!loss.value) refuse("the loss has no function");
  MemoryMeter::install();
  const Program program = make_program(strategy_, strategy_.micro_batches);
  const Outline outline = outline_of(model_);
  sizes_ = stage_sizes(model_, outline, strategy_, program.num_stages());
  StageLayout layout;
  layout.placement = program.placement;
  layout.first_layer.push_back(0);
  for (const int size : sizes_)
    layout.first_layer.push_back(layout.first_layer.back() + static_cast<std::size_t>(size));
  layout.devices = stage_devices(model_, outline, strategy_, layout);
  check_precision(strategy_, layout);
  if (asynchronous_) check_asynchronous_model(outline, layout);
  tensor_names_ = TensorNames(model_, outline);
  check_agreement(grid_, strategy_, model_, outline, sizes_);
  take_own_layers(grid_, layout, &model_);
  SharedModel shared = share_model(model_, outline, std::move(loss), std::move(layout));
  plan_recompute(strategy_, program, &shared);
  return shared;
}

Pipeline::Calls Training::calls() {
  const auto reducer = [this](int stage) -> Reducer& {
    return *reducers_[static_cast<std::size_t>(stage)];
  };
  return {.update = [this](int stage, int version) { return update(stage, version); },
          .start_reduce = [reducer](int stage) { reducer(stage).start(); },
          .reduce = [reducer](int stage) { reducer(stage).flush(); }};
}

/// All replicas start with the values of the first, whatever their own were.
void Training::join_replicas() {
  replicas_ = std::make_unique<Replicas>(grid_, strategy_);
  Tensors tensors;
  for (const auto& [name, tensor] : state()) tensors.push_back(tensor);
  replicas_->broadcast(tensors, 0);
  for (int stage = 0; stage < shared_.layout.num_stages(); ++stage) {
    reducers_.push_back(pipeline_.here(stage)
                            ? std::make_unique<Reducer>(replicas_.get(), updater_.untied(stage),
                                                        updater_.tied(stage))
                            : nullptr);
  }
}

StepInput Training::make_input(const Batch& batch, StepKind kind) const {
  const std::int64_t rows = rows_of(batch);
  // A batch without targets is predicted whole by every replica.
  const int replicas = batch.targets.empty() ? 1 : grid_.replicas;
  const int parts = static_cast<int>(
      std::min<std::int64_t>(std::int64_t{strategy_.micro_batches} * replicas, rows));
  if (parts < replicas)
    refuse(
        fmt::format("a batch of {} rows for {} replicas; give each at least one", rows, replicas));
  StepInput input;
  input.step = num_steps_;
  input.run_seed = strategy_.seed;
  input.training = kind != StepKind::kForward;
  input.precision = strategy_.precision;
  input.check_finite = strategy_.check_finite;
  if (input.training && scaler_) input.loss_scale = scaler_->scale();
  input.inputs = split(batch.inputs, batch.shared_inputs, parts);
  input.targets = split(batch.targets, {}, parts);
  input.weight = static_cast<double>(rows);
  if (!batch.targets.empty() && shared_.loss.weight) {
    double sum = 0;
    for (const Tensors& targets : input.targets) {
      input.weights.push_back(shared_.loss.weight(targets));
      sum += input.weights.back();
    }
    input.weight = sum > 0 ? sum : 1;
  }
  if (replicas > 1) keep_share(grid_, &input);
  return input;
}

StepResult Training::run(const Batch& batch, StepKind kind) {
  drain();
  const StepInput input = make_input(batch, kind);
  expected_weight_ = input.weight;
  loss_scale_ = input.loss_scale;
  gradient_norm_ = 0;
  std::fill(skips_.begin(), skips_.end(), 0);
  StepResult result;
  result.step = num_steps_;
  result.micro_batches = static_cast<int>(input.inputs.size());
  result.loss_scale = input.loss_scale;
  result.timeline = {strategy_.schedule, std::string(1, 's'), {}, {}};
  memory_.begin();
  const auto start = Clock::now();
  const double started = day_seconds();
  try {
    run_micro_batches(kind, input, &result.timeline);
    if (kind != StepKind::kForward && kind != StepKind::kUpdate && !scaler_) check_loss();
    gather_totals(kind, started, &result);
    check_results(kind);
    finish_mini_batch(kind);
  } catch (const std::exception& error) {
    abandon(error.what());
    throw;
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.weight = weight_;
  result.loss = weight_ > 0 ? loss_sum_ / weight_ : 0;
  result.gradient_norm = gradient_norm_;
  result.skipped = skipped();
  result.updated = kind == StepKind::kUpdate && !result.skipped;
  if (kind != StepKind::kForward && last_stage_ != nullptr) last_stage_->clear_results();
  count(kind);
  return result;
}

/// And the update, of a kUpdate.
void Training::run_micro_batches(StepKind kind, const StepInput& input, Timeline* timeline) {
  if (!lanes_ || kind == StepKind::kForward) return pipeline_.run(kind, input, timeline);
  lanes_->run(input, timeline);
  if (kind == StepKind::kUpdate) lanes_->step([this](int stage) { update(stage, -1); });
}

/// What can be told only when all micro-batches have run.
void Training::check_results(StepKind kind) {
  const double difference = std::abs(weight_ - expected_weight_);
  if (kind == StepKind::kMerge && difference > 1e-9 * expected_weight_) {
    refuse(
        "the loss's weight is not the number of rows; with gradient merge, set Loss::weight so "
        "that it is known before the step");
  }
}

/// Batch norm's statistics move once a mini-batch, whether or not the optimizer runs; of a skipped
/// step nothing stays.
void Training::finish_mini_batch(StepKind kind) {
  if (kind == StepKind::kForward) return;
  const bool gradients = kind == StepKind::kGradients;
  const double factor = weight_correction(weight_) / loss_scale_;
  if (!has_norms_ && !gradients) return;
  if (gradients) gather_tied(grid_.rank);
  if (replicas_ && !skipped()) exchange_norms();
  pipeline_.on_every_stage([&](StageRunner& stage) {
    skipped() ? stage.abandon_norms() : stage.finish_mini_batch();
    if (gradients) finish_gradients(stage.stage(), factor);
  });
}

/// Batch norm's statistics are of the whole mini-batch.
void Training::exchange_norms() {
  for (const auto& rank : pipeline_.ranks()) {
    for (const auto& stage : rank->stages()) {
      if (!stage->has_norms()) continue;
      const auto all = replicas_->gather(stage->collected_norms());
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (static_cast<int>(i) != replicas_->number()) stage->add_norms(all[i]);
      }
    }
  }
}

void Training::count(StepKind kind) {
  if (kind == StepKind::kForward) return;
  ++num_steps_;
  if (kind == StepKind::kMerge) ++num_merged_;
  if (kind != StepKind::kUpdate) return;
  num_merged_ = 0;
  if (scaler_) scaler_->update(skipped());
  if (!skipped()) ++num_updates_;
}

void Training::abandon(const std::string& why) {
  flight_.reset();
  pipeline_.fail(why);
  for (const auto& reducer : reducers_) {
    if (reducer) reducer->abandon();
  }
  updater_.clear_all();
  num_merged_ = 0;
}

std::vector<Tensors> Training::take_outputs() {
  std::vector<Tensors> result;
  if (last_stage_ == nullptr) return result;
  for (auto& [m, outputs] : last_stage_->outputs()) result.push_back(std::move(outputs));
  last_stage_->clear_results();
  return result;
}

Tensors Training::share_outputs(Tensors outputs) {
  if (grid_.one_process()) return outputs;
  const int last = shared_.layout.rank_of(shared_.layout.num_stages() - 1);
  try {
    return pipeline_.sharing().share_from(last, grid_.rank, outputs);
  } catch (const std::exception& error) {
    abandon(error.what());
    throw;
  }
}

/// Of the losses known here.
double Training::weight_here() const {
  double weight = 0;
  if (last_stage_ == nullptr) return weight;
  for (const auto& [m, value] : last_stage_->losses()) weight += value.weight;
  return weight;
}

/// Loss and weight of the whole mini-batch, which other processes learn from that of the last
/// stage; and what all ranks of this pipeline did, and the bytes they took.
void Training::gather_totals(StepKind kind, double started, StepResult* result) {
  StepReport own;
  own.started = started;
  if (kind != StepKind::kForward && stop_asked_.exchange(false)) own.stops = 1;
  own.weight = weight_here();
  if (last_stage_ != nullptr) {
    for (const auto& [m, value] : last_stage_->losses()) own.loss_sum += value.sum.item<double>();
  }
  own.rank_peaks = memory_.rank_peaks();
  own.stage_peaks = memory_.stage_peaks();
  if (!grid_.one_process()) {
    own.spans = result->timeline.ranks.front();
    own.memory = result->timeline.memory.front();
    const auto all = pipeline_.sharing().share(grid_.rank, Sharing::Topic::kTotals, pack(own));
    std::vector<StepReport> reports;
    for (const auto& numbers : all) reports.push_back(unpack(numbers));
    own = join_reports(std::move(reports), &result->timeline);
  }
  result->peak_bytes = std::move(own.rank_peaks);
  result->stage_peak_bytes = std::move(own.stage_peaks);
  loss_sum_ = own.loss_sum;
  weight_ = own.weight;
  if (replicas_) {
    const std::vector<double> sums = replicas_->sum({loss_sum_, weight_, own.stops});
    loss_sum_ = sums[0];
    weight_ = sums[1];
    own.stops = sums[2];
  }
  result->stop_asked = own.stops > 0;
}

/// The true weight instead of the expected one.
double Training::weight_correction(double weight) const {
  return weight > 0 ? expected_weight_ / weight : 1;
}

void Training::check_loss() const {
  if (last_stage_ == nullptr) return;
  for (const auto& [m, value] : last_stage_->losses()) {
    const double sum = value.sum.item<double>();
    if (std::isfinite(sum)) continue;
    throw StageError(
        "trainer", fmt::format("the loss of micro-batch {} is {}; set check_finite to learn which "
                               "layer made the first such value, or lower the learning rate",
                               m, sum));
  }
}

}  // namespace pipewright
