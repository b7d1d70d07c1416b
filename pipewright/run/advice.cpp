#include "pipewright/run/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "pipewright/run/what_if.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

constexpr double kLeastGain = 0.01;
constexpr int kMostChunks = 4;
constexpr int kMostMicroBatches = 4096;
constexpr std::size_t kSchedulesTogether = 3;

const std::string kInProportion =
    "takes for granted that a micro-batch of half the size takes half the time: small ones often "
    "take more";

std::string schedule_words(const Plan& plan) {
  return plan.chunks == 1 ? plan.schedule
                          : fmt::format("{} with {} stages a rank", plan.schedule, plan.chunks);
}

std::vector<std::string> schedule_settings(const Plan& plan) {
  return {fmt::format("pipeline.schedule=\"{}\"", plan.schedule),
          fmt::format("pipeline.chunks={}", plan.chunks)};
}

std::vector<std::string> split_settings(const Plan& plan) {
  return {"pipeline.partition=\"manual\"",
          fmt::format("pipeline.sizes=[{}]", fmt::join(plan.sizes, ","))};
}

/// Collects what is tried for a run.
class Adviser {
 public:
  Adviser(WhatIf what_if, double measured_seconds)
      : what_if_(std::move(what_if)), base_(what_if_.baseline()) {
    advice_.baseline = base_;
    advice_.measured_step_seconds = measured_seconds;
    advice_.knows_bytes = what_if_.knows_layers();
  }

  Advice advise() && {
    try_schedules();
    try_micro_batches();
    try_split();
    try_recompute();
    try_batch();
    try_together();
    std::stable_sort(advice_.faster.begin(), advice_.faster.end(),
                     [](const auto& a, const auto& b) { return a.speedup > b.speedup; });
    return std::move(advice_);
  }

 private:
  Suggestion judged(std::string kind, std::string title, std::vector<std::string> settings,
                    Plan plan, std::string caveat = "") const {
    Suggestion one{std::move(kind), std::move(title), std::move(settings), std::move(caveat),
                   std::move(plan)};
    const double ratio = one.plan.step_seconds / base_.step_seconds;
    one.step_seconds = advice_.measured_step_seconds * ratio;
    one.speedup = static_cast<double>(one.plan.global_batch) /
                  static_cast<double>(base_.global_batch) / ratio;
    one.fits = what_if_.fits(one.plan);
    return one;
  }

  void add_if_faster(const Suggestion& one) {
    if (one.fits && one.speedup >= 1 + kLeastGain) advice_.faster.push_back(one);
  }

  /// All schedules; among the suggestions, the best one.
  void try_schedules() {
    for (const ScheduleInfo& info : all_schedules()) {
      if (info.forward_only || info.asynchronous) continue;  // late updates are another training
      for (int chunks = info.default_chunks; chunks <= std::min(info.most_chunks, kMostChunks);
           ++chunks) {
        const bool as_it_was = info.name == base_.schedule && chunks == base_.chunks;
        if (base_.ranks * chunks > what_if_.num_layers() && !as_it_was) continue;
        const Plan plan = what_if_.with_schedule(base_, std::string(info.name), chunks);
        advice_.schedules.push_back(judged(
            "schedule",
            fmt::format("Schedule {} instead of {}", schedule_words(plan), schedule_words(base_)),
            settings_of_shape(plan), plan));
        if (info.name == "gpipe") break;  // with more chunks it only sends more
      }
    }
    std::stable_sort(advice_.schedules.begin(), advice_.schedules.end(),
                     [](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; });
    const auto best = std::find_if(advice_.schedules.begin(), advice_.schedules.end(),
                                   [](const Suggestion& one) { return one.fits; });
    if (best != advice_.schedules.end() && base_.ranks > 1) add_if_faster(*best);
  }

  /// Where a rank has another number of stages, they are named too: others might be chosen.
  std::vector<std::string> settings_of_shape(const Plan& plan) const {
    std::vector<std::string> settings = schedule_settings(plan);
    if (plan.sizes == base_.sizes) return settings;
    for (const std::string& one : split_settings(plan)) settings.push_back(one);
    return settings;
  }

  bool can_have(std::int64_t micro_batches) const {
    return micro_batches >= 1 &&
           micro_batches <= std::min<std::int64_t>(base_.global_batch, kMostMicroBatches);
  }

  void try_micro_batches() {
    std::optional<Suggestion> best;
    for (const int count :
         {2 * base_.micro_batches, 4 * base_.micro_batches, base_.micro_batches / 2}) {
      if (!can_have(count)) continue;
      const Plan plan = what_if_.with_micro_batches(base_, count);
      Suggestion one =
          judged("micro_batches",
                 fmt::format("{} micro-batches of {} instead of {} of {}", count,
                             plan.micro_batch_size, base_.micro_batches, base_.micro_batch_size),
                 {fmt::format("pipeline.micro_batches={}", count)}, plan,
                 count > base_.micro_batches ? kInProportion : "");
      if (one.fits && (!best || one.speedup > best->speedup)) best = std::move(one);
    }
    if (best && base_.ranks > 1) add_if_faster(*best);
  }

  void try_split() {
    if (!what_if_.knows_layers()) return;
    const Plan plan = what_if_.with_best_split(base_);
    if (plan.sizes == base_.sizes) return;
    add_if_faster(judged("split",
                         fmt::format("Stages of {} layers instead of {}",
                                     fmt::join(plan.sizes, ", "), fmt::join(base_.sizes, ", ")),
                         split_settings(plan), plan));
  }

  void try_recompute() {
    if (!base_.operations.empty()) {
      add_if_faster(judged("recompute", "No recompute: everything is held for the backward",
                           {"recompute.mode=\"none\""}, what_if_.without_recompute(base_)));
      return;
    }
    if (!what_if_.knows_layers()) return;
    const Plan plan = what_if_.with_whole_recompute(base_);
    if (most_bytes(plan) >= most_bytes(base_)) return;
    advice_.leaner.push_back(judged("recompute", "Recompute every stage from its input",
                                    {"recompute.mode=\"all\""}, plan));
  }

  void try_batch() {
    if (base_.ranks == 1 || 2 * std::int64_t{base_.micro_batches} > kMostMicroBatches) return;
    const Plan plan = what_if_.with_batch(base_, 2);
    add_if_faster(judged(
        "batch",
        fmt::format("Twice the batch: {} micro-batches of the same size", plan.micro_batches),
        {fmt::format("data.batch={}", plan.global_batch),
         fmt::format("pipeline.micro_batches={}", plan.micro_batches)},
        plan, "changes what is trained: a batch of another size wants another learning rate"));
  }

  /// The same run without recompute, where it has any and fits without.
  Plan start_of_together() const {
    if (base_.operations.empty()) return base_;
    Plan plain = what_if_.without_recompute(base_);
    return what_if_.fits(plain) ? plain : base_;
  }

  /// The best schedules, more micro-batches and the best split at once.
  void try_together() {
    if (base_.ranks == 1) return;
    const Plan start = start_of_together();
    std::optional<Plan> best;
    for (std::size_t i = 0; i < std::min(kSchedulesTogether, advice_.schedules.size()); ++i) {
      const Plan& shape = advice_.schedules[i].plan;
      for (const int times : {1, 2}) {
        if (!can_have(std::int64_t{times} * base_.micro_batches)) continue;
        Plan plan = what_if_.with_schedule(start, shape.schedule, shape.chunks);
        plan = what_if_.with_micro_batches(std::move(plan), times * base_.micro_batches);
        if (what_if_.knows_layers()) plan = what_if_.with_best_split(std::move(plan));
        if (what_if_.fits(plan) && (!best || plan.step_seconds < best->step_seconds)) best = plan;
      }
    }
    if (best) add_together(*best);
  }

  void add_together(const Plan& plan) {
    std::vector<std::string> words;
    std::vector<std::string> settings;
    const auto add = [&](std::string word, const std::vector<std::string>& more) {
      words.push_back(std::move(word));
      settings.insert(settings.end(), more.begin(), more.end());
    };
    const bool same_schedule = plan.schedule == base_.schedule && plan.chunks == base_.chunks;
    if (!same_schedule) add(schedule_words(plan), schedule_settings(plan));
    if (plan.micro_batches != base_.micro_batches)
      add(fmt::format("{} micro-batches", plan.micro_batches),
          {fmt::format("pipeline.micro_batches={}", plan.micro_batches)});
    if (plan.sizes != base_.sizes && what_if_.knows_layers())
      add(fmt::format("stages of {} layers", fmt::join(plan.sizes, ", ")), split_settings(plan));
    if (plan.operations.empty() && !base_.operations.empty())
      add("no recompute", {"recompute.mode=\"none\""});
    if (words.size() < 2) return;  // that one stands alone already
    add_if_faster(judged("together", fmt::format("Together: {}", fmt::join(words, "; ")),
                         std::move(settings), plan,
                         plan.micro_batches > base_.micro_batches ? kInProportion : ""));
  }

  WhatIf what_if_;
  Plan base_;
  Advice advice_;
};

std::string reason_for_none(const RunRecord& run) {
  if (!run.plan) return "the run has no plan.json, so its schedule is not known";
  if (find_schedule(run.plan->schedule).forward_only) return "the run trains nothing";
  if (find_schedule(run.plan->schedule).asynchronous) {
    return "the run's schedule goes on from one mini-batch to the next, and what is compared here "
           "are "
           "whole steps";
  }
  if (!run.measured) return "no step of the run was measured";
  if (!(StepTimes(run.measured->timeline).step_time() > 0)) return "the measured step is empty";
  return "";
}

}  // namespace

Advice advise(const RunRecord& run) {
  Advice none;
  none.unknown = reason_for_none(run);
  if (!none.unknown.empty()) return none;
  const Timeline& timeline = run.measured->timeline;
  WhatIf what_if(measured_model(*run.plan, run.profile, timeline));
  if (!(what_if.baseline().step_seconds > 0)) {
    none.unknown = "the measured step has no instruction that takes time";
    return none;
  }
  return Adviser(std::move(what_if), StepTimes(timeline).step_time()).advise();
}

}  // namespace pipewright
