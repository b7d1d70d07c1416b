// The part of Training that runs asynchronous schedules.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/train/training.h"

namespace pipewright {
namespace {

double last_end_of(const Timeline& timeline) {
  double end = 0;
  for (const auto& spans : timeline.ranks) {
    for (const Span& span : spans) end = std::max(end, span.end);
  }
  return end;
}

}  // namespace

Training::~Training() {
  try {
    drain();
  } catch (const std::exception&) {  // nobody asks for it any more
  }
}

void Training::refuse_asynchronous(const std::string& why) const {
  throw InvalidArgument("trainer", fmt::format("schedule '{}' {}", strategy_.schedule, why));
}

/// What needs all ranks at one moment has no place in a pipeline whose ranks never meet.
void Training::check_asynchronous() const {
  const Strategy& s = strategy_;
  const auto refuse = [&](const std::string& why) { refuse_asynchronous(why); };
  const int merged = s.micro_batches * s.merge_steps;
  const int least = least_between_updates(s.schedule, s.ranks);
  if (merged < least) {
    refuse(fmt::format(
        "needs at least {} micro-batches an update with {} ranks, and {} x {} steps are fewer; use "
        "micro_batches = {} or more, or merge_steps",
        least, s.ranks, s.micro_batches, s.merge_steps,
        (least + s.merge_steps - 1) / s.merge_steps));
  }
  if (s.clip_norm > 0)
    refuse("updates each stage by itself: there is no norm over all of them; leave out clip_norm");
  if (s.scale_loss.value_or(s.precision == Precision::kFp16)) {
    refuse(
        "updates each stage by itself: they cannot skip an update together, as loss scaling "
        "asks; use Precision::kBf16, or scale_loss = false");
  }
  if (s.recompute == RecomputeMode::kExceptLast)
    refuse("has no last micro-batch, which recompute = kExceptLast would keep; use kAll");
}

void Training::check_asynchronous_model(const Outline& outline, const StageLayout& layout) const {
  for (std::size_t i = 0; i < outline.size(); ++i) {
    const auto norm = std::find_if(outline[i].begin(), outline[i].end(), [](const auto& tensor) {
      return !tensor.is_parameter && tensor.name.ends_with("running_mean");
    });
    if (norm == outline[i].end()) continue;
    refuse_asynchronous(fmt::format(
        "cannot train the batch norm '{}' of layer '{}': its statistics would be of outputs that "
        "several versions of the weights made; use group or layer norm, or a synchronous schedule",
        norm->name, model_.layers()[i].name));
  }
  std::map<int, std::size_t> first_use;  // of a tensor, by its number
  for (std::size_t i = 0; i < outline.size(); ++i) {
    for (const TensorOutline& tensor : outline[i]) {
      if (!tensor.is_parameter || !tensor.requires_grad) continue;
      const std::size_t first = first_use.try_emplace(tensor.number, i).first->second;
      if (layout.stage_of(first) == layout.stage_of(i)) continue;
      refuse_asynchronous(fmt::format(
          "cannot train '{}', which layers '{}' and '{}' share over two stages: each would have "
          "another version of it; untie it (in a config: model.tied = false), or put both layers "
          "on one stage",
          tensor.name, model_.layers()[first].name, model_.layers()[i].name));
    }
  }
}

void Training::take_off() {
  memory_.begin();
  first_update_ = num_updates_;
  last_end_ = 0;
  flight_started_ =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  flight_ = std::make_unique<Flight>(
      &pipeline_, strategy_, grid_.one_process(),
      [this](RankRunner& rank, const Piece& piece) { return report(rank, piece); },
      [this](int stage) -> Tensors { return updater_.parameters(stage); });
  flight_depth_ = flight_->depth();
}

StepResult Training::fly(const Batch& batch, StepKind kind) {
  StepInput input = make_input(batch, kind);
  if (!flight_) take_off();
  flight_->push(std::move(input), kind == StepKind::kUpdate);
  count(kind);
  try {
    if (flight_->num_under_way() > flight_depth_) take_piece();
  } catch (const std::exception& error) {
    abandon(error.what());
    throw;
  }
  // As late as ever, also where a drain has finished more of them.
  const int under_way = flight_->num_under_way() + static_cast<int>(finished_.size());
  StepResult result;
  result.pending = true;
  if (under_way < flight_depth_ || finished_.empty()) return result;
  result = std::move(finished_.front());
  finished_.pop_front();
  return result;
}

void Training::take_piece() {
  finished_.push_back(result_of(*flight_->take()));
  if (grid_.one_process() && stop_asked_.exchange(false)) finished_.back().stop_asked = true;
}

void Training::drain() {
  if (!flight_) return;
  try {
    flight_->drain();
    while (flight_->num_under_way() > 0) take_piece();
  } catch (const std::exception& error) {
    abandon(error.what());
    throw;
  }
  flight_.reset();
}

std::vector<StepResult> Training::take_results() {
  drain();
  std::vector<StepResult> results(std::make_move_iterator(finished_.begin()),
                                  std::make_move_iterator(finished_.end()));
  finished_.clear();
  return results;
}

/// On the rank's thread. A last stage has run all forwards of the mini-batch.
StepReport Training::report(RankRunner& rank, const Piece& piece) {
  StepReport own;
  if (!piece.input) return own;
  for (const auto& stage : rank.stages()) {
    if (stage.get() != last_stage_) continue;
    for (const auto& [m, value] : last_stage_->losses()) own.loss_sum += value.sum.item<double>();
    own.weight = weight_here();
    last_stage_->clear_results();
  }
  if (!grid_.one_process()) own.stops = stop_asked_.exchange(false) ? 1 : 0;
  if (replicas_) {
    const std::vector<double> sums = replicas_->sum({own.loss_sum, own.weight, own.stops});
    own.loss_sum = sums[0];
    own.weight = sums[1];
    own.stops = sums[2];
  }
  own.started = flight_started_;
  const RankTrace& trace = piece.traces[static_cast<std::size_t>(rank.rank() - grid_.first_here())];
  own.spans = trace.spans;
  own.memory = trace.memory;
  // Each rank of its own; those of others are theirs to tell.
  const auto number = static_cast<std::size_t>(rank.rank());
  own.rank_peaks.resize(static_cast<std::size_t>(strategy_.ranks));
  own.rank_peaks[number] = memory_.rank_peaks()[number];
  own.stage_peaks = own.rank_peaks;  // one stage a rank
  own.versions.resize(own.rank_peaks.size());
  own.versions[number] = rank.most_versions(rank.stages().front()->stage());
  return own;
}

StepResult Training::result_of(const Piece& piece) {
  StepResult result;
  result.step = piece.input->step;
  result.micro_batches = static_cast<int>(piece.input->inputs.size());
  result.updated = piece.updates;
  result.timeline = {strategy_.schedule, std::string(1, 's'), {}, {}};
  StepReport all = join_reports(piece.reports, &result.timeline);
  result.stop_asked = all.stops > 0;
  result.weight = all.weight;
  result.loss = all.weight > 0 ? all.loss_sum / all.weight : 0;
  result.peak_bytes = std::move(all.rank_peaks);
  result.stage_peak_bytes = std::move(all.stage_peaks);
  result.versions = std::move(all.versions);
  const double end = last_end_of(result.timeline);
  result.seconds = end - std::exchange(last_end_, end);
  const double expected = piece.input->weight;
  if (std::abs(all.weight - expected) > 1e-9 * expected) {
    throw InvalidArgument(
        "trainer",
        fmt::format("the loss's weight, {}, is not the number of rows, {}; with schedule '{}', set "
                    "Loss::weight so that it is known before the step",
                    all.weight, expected, strategy_.schedule));
  }
  return result;
}

/// On the rank's thread. The weight of the loss was known when the backwards began.
double Training::update_delayed(int stage, int version) {
  if (last_stage_ != nullptr && last_stage_->stage() == stage) check_loss();
  finish_gradients(stage, 1.0 / (strategy_.merge_average ? strategy_.merge_steps : 1));
  if (strategy_.check_finite) updater_.check_finite(stage);
  step_optimizer(stage, first_update_ + version - 1);
  return 0;
}

}  // namespace pipewright
