#include "pipewright/train/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/torch/compat.h"
#include "pipewright/train/layout.h"
#include "pipewright/train/recompute_plan.h"

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
  if (s.merge_steps < 1) refuse(fmt::format("merge_steps = {}; use 1 or more", s.merge_steps));
  if (!(s.clip_norm >= 0)) refuse(fmt::format("clip_norm = {}; use 0 (off) or more", s.clip_norm));
  if (!(s.deadline_seconds > 0))
    refuse(fmt::format("deadline_seconds = {}; use more than 0", s.deadline_seconds));
  if (find_schedule(s.schedule).forward_only)
    refuse(fmt::format("schedule '{}' trains nothing", s.schedule));
}

void check_precision(const Strategy& strategy, const StageLayout& layout) {
  if (strategy.precision != Precision::kFp16 || compat::kCpuRunsHalf) return;
  for (const auto& device : layout.devices) {
    if (device.is_cpu())
      refuse("precision = kFp16 does not run on the CPU with this LibTorch; use kBf16");
  }
}

void move_model(const Sequence& model, const StageLayout& layout) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto& module = model.layers()[i].module;
    if (module) module->to(layout.device_of(layout.stage_of(i)));
  }
}

}  // namespace

Training::Training(Sequence model, Loss loss, const OptimizerFactory& factory, Strategy strategy)
    : model_(std::move(model)),
      strategy_(std::move(strategy)),
      shared_(lay_out(std::move(loss))),
      updater_(shared_, factory),
      pipeline_(shared_, strategy_, [this](int stage) { return update(stage); }),
      memory_(shared_, pipeline_),
      skips_(pipeline_.ranks().size()),
      announced_(pipeline_.ranks().size()) {
  if (strategy_.scale_loss.value_or(strategy_.precision == Precision::kFp16))
    scaler_.emplace(strategy_.loss_scaling);
  for (const auto& rank : pipeline_.ranks()) {
    for (const auto& stage : rank->stages()) {
      has_norms_ = has_norms_ || stage->has_norms();
      if (stage->stage() + 1 == shared_.layout.num_stages()) last_stage_ = stage.get();
    }
  }
}

SharedModel Training::lay_out(Loss loss) {
  check_strategy(strategy_);
  model_.check();
  if (!loss.value) refuse("the loss has no function");
  MemoryMeter::install();
  const Program program = make_program(strategy_, strategy_.micro_batches);
  sizes_ = stage_sizes(model_, strategy_, program.num_stages());
  StageLayout layout;
  layout.placement = program.placement;
  layout.first_layer.push_back(0);
  for (const int size : sizes_)
    layout.first_layer.push_back(layout.first_layer.back() + static_cast<std::size_t>(size));
  layout.devices = stage_devices(model_, strategy_, layout);
  check_precision(strategy_, layout);
  move_model(model_, layout);
  SharedModel shared = share_model(model_, std::move(loss), std::move(layout));
  plan_recompute(strategy_, program, &shared);
  return shared;
}

StepInput Training::make_input(const Batch& batch, StepKind kind) const {
  const std::int64_t rows = rows_of(batch);
  const int parts = static_cast<int>(std::min<std::int64_t>(strategy_.micro_batches, rows));
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
  return input;
}

StepResult Training::run(const Batch& batch, StepKind kind) {
  const StepInput input = make_input(batch, kind);
  expected_weight_ = input.weight;
  loss_scale_ = input.loss_scale;
  gradient_norm_ = 0;
  std::fill(skips_.begin(), skips_.end(), 0);
  StepResult result;
  result.micro_batches = static_cast<int>(input.inputs.size());
  result.loss_scale = input.loss_scale;
  result.timeline = {strategy_.schedule, std::string(1, 's'), {}, {}};
  memory_.begin();
  const auto start = Clock::now();
  try {
    pipeline_.run(kind, input, &result.timeline);
    check_results(kind);
    finish_mini_batch(kind);
  } catch (...) {
    abandon();
    throw;
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.peak_bytes = memory_.rank_peaks();
  result.stage_peak_bytes = memory_.stage_peaks();
  for (const auto& [m, value] : losses()) result.loss += value.sum.item<double>();
  result.weight = total_weight();
  result.loss = result.weight > 0 ? result.loss / result.weight : 0;
  result.gradient_norm = gradient_norm_;
  result.skipped = skips_[0] != 0;
  result.updated = kind == StepKind::kUpdate && !result.skipped;
  if (kind != StepKind::kForward) last_stage_->clear_results();
  count(kind);
  return result;
}

/// What can be told only when all micro-batches have run. (With kUpdate, update() has told.)
void Training::check_results(StepKind kind) {
  if (kind == StepKind::kForward || kind == StepKind::kUpdate) return;
  if (!scaler_) check_loss();
  const double difference = std::abs(total_weight() - expected_weight_);
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
  const double factor = weight_correction() / loss_scale_;
  if (!has_norms_ && !gradients) return;
  pipeline_.on_every_stage([&](StageRunner& stage) {
    skips_[0] != 0 ? stage.abandon_norms() : stage.finish_mini_batch();
    if (gradients) updater_.finish_gradients(stage.stage(), factor);
  });
}

void Training::count(StepKind kind) {
  if (kind == StepKind::kForward) return;
  ++num_steps_;
  if (kind == StepKind::kMerge) ++num_merged_;
  if (kind != StepKind::kUpdate) return;
  num_merged_ = 0;
  const bool skipped = skips_[0] != 0;
  if (scaler_) scaler_->update(skipped);
  if (!skipped) ++num_updates_;
}

void Training::abandon() {
  pipeline_.abandon();
  updater_.clear_all();
  num_merged_ = 0;
}

std::vector<Tensors> Training::take_outputs() {
  std::vector<Tensors> result;
  for (auto& [m, outputs] : last_stage_->outputs()) result.push_back(std::move(outputs));
  last_stage_->clear_results();
  return result;
}

const std::map<int, LossValue>& Training::losses() const { return last_stage_->losses(); }

double Training::total_weight() const {
  double weight = 0;
  for (const auto& [m, value] : losses()) weight += value.weight;
  return weight;
}

/// The true weight instead of the expected one.
double Training::weight_correction() const {
  const double weight = total_weight();
  return weight > 0 ? expected_weight_ / weight : 1;
}

void Training::check_loss() const {
  for (const auto& [m, value] : losses()) {
    const double sum = value.sum.item<double>();
    if (std::isfinite(sum)) continue;
    throw StageError(
        "trainer", fmt::format("the loss of micro-batch {} is {}; set check_finite to learn which "
                               "layer made the first such value, or lower the learning rate",
                               m, sum));
  }
}

}  // namespace pipewright
