#include "pipewright/run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "pipewright/plan/stage_work.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/sim/steady.h"
#include "pipewright/trace/drawing.h"

namespace pipewright {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_of(const std::vector<StepMetrics>& steps, double StepMetrics::*member) {
  std::vector<double> values;
  for (const StepMetrics& step : steps) {
    if (std::isfinite(step.*member)) values.push_back(step.*member);
  }
  return median(std::move(values));
}

std::string state_of(const RunRecord& run) {
  if (run.facts.sessions.empty()) return run.is_live ? "running" : "empty";
  const Outcome outcome = run.facts.sessions.back().outcome;
  if (outcome != Outcome::kRunning) return std::string(outcome_name(outcome));
  return run.is_live ? "running" : "killed";
}

/// Raises `most` to what is larger in `values`.
void raise(const std::vector<std::int64_t>& values, std::vector<std::int64_t>* most) {
  most->resize(std::max(most->size(), values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) (*most)[i] = std::max((*most)[i], values[i]);
}

void sum_up_losses(const std::vector<StepMetrics>& steps, Headline* headline) {
  std::vector<double> losses;
  for (const StepMetrics& step : steps) {
    if (std::isfinite(step.loss)) losses.push_back(step.loss);
  }
  if (losses.empty()) return;
  headline->first_loss = losses.front();
  const std::size_t count = std::max<std::size_t>(1, losses.size() / 20);
  double sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  headline->final_loss = sum / static_cast<double>(count);
}

void sum_up_validation(const std::vector<ValidationMetrics>& validations, Headline* headline) {
  for (const ValidationMetrics& one : validations) {
    for (const auto& [name, value] : one.values) {
      const auto [entry, is_new] =
          headline->validation.try_emplace(name, ValidationSummary{value, value, one.step});
      ValidationSummary& summary = entry->second;
      summary.last = value;
      const bool better = less_is_better(name) ? value < summary.best : value > summary.best;
      if (is_new || !better) continue;
      summary.best = value;
      summary.best_step = one.step;
    }
  }
}

/// A session without an end lasted to its last line.
double training_seconds(const RunRecord& run) {
  double sum = 0;
  for (std::size_t i = 0; i < run.facts.sessions.size(); ++i) {
    const Session& session = run.facts.sessions[i];
    const bool is_last = i + 1 == run.facts.sessions.size();
    double end = session.ended;
    if (!(end > 0) && is_last && !run.metrics.steps.empty())
      end = run.metrics.steps.back().unix_time;
    sum += std::max(0.0, end - session.started);
  }
  return sum;
}

Headline headline_of(const RunRecord& run) {
  Headline headline;
  const auto& steps = run.metrics.steps;
  headline.state = state_of(run);
  headline.steps = run.last_step();
  sum_up_losses(steps, &headline);
  sum_up_validation(run.metrics.validations, &headline);
  headline.samples_per_second = median_of(steps, &StepMetrics::samples_per_second);
  headline.step_seconds = median_of(steps, &StepMetrics::seconds);
  headline.bubble_fraction = median_of(steps, &StepMetrics::bubble);
  for (const StepMetrics& step : steps) {
    raise(step.peak_bytes, &headline.peak_bytes);
    raise(step.stage_peak_bytes, &headline.stage_peak_bytes);
    headline.skipped_steps += step.skipped ? 1 : 0;
  }
  headline.training_seconds = training_seconds(run);
  if (run.plan) {
    headline.memory_bytes = run.plan->memory_bytes;
    headline.predicted_peak_bytes = run.plan->peak_bytes;
    if (run.plan->step_seconds > 0) {
      headline.predicted_step_seconds = run.plan->step_seconds;
      headline.predicted_bubble_fraction = run.plan->bubble_fraction;
    }
  }
  return headline;
}

std::vector<RankReport> ranks_of(const Timeline& timeline, double step_time) {
  const StepTimes times(timeline);
  std::vector<RankReport> ranks;
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    const RankTimes& rank = times.ranks()[r];
    RankReport report;
    for (const Span& span : timeline.ranks[r]) report.stages.push_back(span.stage);
    std::sort(report.stages.begin(), report.stages.end());
    report.stages.erase(std::unique(report.stages.begin(), report.stages.end()),
                        report.stages.end());
    report.compute = rank.compute;
    report.recompute = rank.recompute;
    report.update = rank.update;
    const double idle = std::max(0.0, step_time - rank.busy());
    const double waited = std::clamp(rank.link_wait, 0.0, idle);
    report.communication = rank.reduce + waited;
    report.idle = idle - waited;
    ranks.push_back(std::move(report));
  }
  return ranks;
}

std::string layer_words(const std::optional<Profile>& profile, const LayerRange& range) {
  if (!profile || range.last > profile->layers.size() || range.first >= range.last) return "";
  const std::string& first = profile->layers[range.first].name;
  const std::string& last = profile->layers[range.last - 1].name;
  return range.size() == 1 ? first : fmt::format("{} to {}", first, last);
}

std::vector<StageReport> stages_of(const RunRecord& run) {
  std::vector<StageReport> stages;
  if (!run.plan || !run.measured) return stages;
  const Timeline& timeline = run.measured->timeline;
  const std::vector<LayerRange> ranges = layer_ranges(run.plan->sizes);
  const std::vector<StageCost> costs = measured_costs(timeline, ranges.size());
  for (std::size_t s = 0; s < ranges.size(); ++s)
    stages.push_back({0, layer_words(run.profile, ranges[s]), ranges[s].size(), costs[s]});
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    for (const Span& span : timeline.ranks[r])
      stages[static_cast<std::size_t>(span.stage)].rank = static_cast<int>(r);
  }
  return stages;
}

/// Where nothing was predicted, the step as the simulator runs it with its own mean times.
std::optional<Timeline> simulated(const RunRecord& run) {
  if (!run.plan || !run.measured) return std::nullopt;
  const StepCosts costs{measured_costs(run.measured->timeline, run.plan->sizes.size()), {}};
  Timeline timeline = simulate(plan_program(*run.plan), costs).timeline;
  timeline.name = "Simulated with the mean times measured";
  timeline.time_unit = run.measured->timeline.time_unit;
  return timeline;
}

/// Steps of an asynchronous schedule overlap: what counts is the time from one to the next.
double measured_step_time(const Timeline& timeline, const Headline& headline) {
  if (has_versions(timeline) && headline.step_seconds > 0) return headline.step_seconds;
  return StepTimes(timeline).step_time();
}

/// Of an asynchronous schedule without its warm-up and drain.
StepTimes predicted_times(const RunRecord& run, const Timeline& timeline) {
  const bool of_plan =
      run.plan && timeline.ranks.size() == static_cast<std::size_t>(run.plan->ranks);
  if (!of_plan || !has_versions(timeline)) return StepTimes(timeline);
  SteadyWindow window(plan_program(*run.plan));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    for (const Span& span : timeline.ranks[rank]) window.add(rank, span);
  }
  return window.exists() ? window.times() : StepTimes(timeline);
}

void add_timelines(RunReport* report) {
  const RunRecord& run = report->run;
  if (run.measured) {
    const Timeline& timeline = run.measured->timeline;
    const double step_time = measured_step_time(timeline, report->headline);
    report->timelines.push_back(timeline);
    report->timelines.back().name = fmt::format("Measured: step {}", run.measured->step);
    report->measured = breakdown(StepTimes(timeline), step_time);
    report->ranks = ranks_of(timeline, step_time);
  }
  if (run.predicted) {
    report->timelines.push_back(run.predicted->timeline);
    report->timelines.back().name = "Predicted by the plan";
    report->predicted = breakdown(predicted_times(run, run.predicted->timeline));
  } else if (auto timeline = simulated(run)) {
    report->predicted = breakdown(predicted_times(run, *timeline));
    report->timelines.push_back(std::move(*timeline));
  }
}

}  // namespace

bool less_is_better(const std::string& metric) {
  std::string lower = metric;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto has = [&](const char* word) { return lower.find(word) != std::string::npos; };
  return has("loss") || has("error") || has("perplexity") || has("ppl");
}

RunReport make_report(RunRecord run) {
  RunReport report;
  report.headline = headline_of(run);
  report.advice = advise(run);
  report.run = std::move(run);
  add_timelines(&report);
  report.stages = stages_of(report.run);
  return report;
}

}  // namespace pipewright
