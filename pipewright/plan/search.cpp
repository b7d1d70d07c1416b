#include "pipewright/plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/cost/scale.h"
#include "pipewright/partition/partition.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"

namespace pipewright {
namespace {

/// How many instructions are simulated for one schedule and number of micro-batches.
constexpr std::int64_t kMostWork = 2'000'000;

StepCosts step_costs(const Profile& profile, const Plan& plan, const Program& program,
                     double bandwidth, double latency) {
  StepCosts costs;
  costs.link.latency = latency;
  const std::vector<LayerRange> ranges = layer_ranges(plan.sizes);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    costs.stages.push_back(
        stage_cost(profile, ranges[s], program, static_cast<int>(s),
                   plan.operations.empty() ? save_everything(ranges[s].size()) : plan.operations[s],
                   plan.offloads(s)));
    if (bandwidth > 0) {
      costs.stages.back().link_time =
          static_cast<double>(profile.layers[ranges[s].last - 1].output_bytes) / bandwidth;
    }
  }
  return costs;
}

/// `program`: the plan's, which is the same for every split.
void predict_with(const Profile& profile, const Program& program, double bandwidth, double latency,
                  Plan* plan) {
  const Simulation sim = simulate(program, step_costs(profile, *plan, program, bandwidth, latency),
                                  {.record_timeline = false});
  const auto& going_on = sim.asynchronous;
  plan->step_seconds = going_on ? going_on->mini_batch_time(plan->micro_batches) : sim.step_time();
  plan->bubble_fraction = (going_on ? going_on->steady : sim.times).bubble_fraction();
  plan->delay = going_on ? *std::max_element(going_on->delay.begin(), going_on->delay.end()) : 0;
  plan->peak_bytes.clear();
  for (const double bytes : sim.peak_bytes)
    plan->peak_bytes.push_back(static_cast<std::int64_t>(std::ceil(bytes)));
}

std::int64_t most(const std::vector<std::int64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// Fastest first; of those that differ by rounding alone the one with fewer micro-batches, then
/// with less memory.
bool better(const Plan& a, const Plan& b) {
  constexpr double kRounding = 1e-9;
  const double difference = a.step_seconds - b.step_seconds;
  if (std::abs(difference) > kRounding * b.step_seconds) return difference < 0;
  if (a.micro_batches != b.micro_batches) return a.micro_batches < b.micro_batches;
  return most(a.peak_bytes) < most(b.peak_bytes);
}

/// A split that was looked at.
struct Outcome {
  Plan plan;
  BudgetPlan missing;  // where it does not fit

  std::int64_t excess() const { return missing.least_bytes; }  // 0 where it fits
};

bool better(const Outcome& a, const Outcome& b) {
  if (a.excess() != b.excess()) return a.excess() < b.excess();
  return better(a.plan, b.plan);
}

/// Looks for the best split of one schedule and number of micro-batches.
class SplitSearch {
 public:
  SplitSearch(const Profile& profile, const PlanRequest& request, BudgetPlanner* planner, Plan base)
      : profile_(profile),
        request_(request),
        planner_(planner),
        base_(std::move(base)),
        program_(make_schedule({.name = base_.schedule,
                                .ranks = base_.ranks,
                                .micro_batches = base_.micro_batches,
                                .chunks = base_.chunks})),
        plain_(plan_program(base_)),
        left_(kMostWork) {}

  Outcome best() {
    if (few_splits()) {
      try_all({}, static_cast<int>(profile_.layers.size()));
    } else {
      for (const bool by_bytes : {false, true}) climb(lightest(by_bytes));
    }
    return std::move(*best_);
  }

 private:
  int stages() const { return base_.ranks * base_.chunks; }
  std::int64_t work() const { return 3 * std::int64_t{stages()} * program_.num_micro_batches; }

  bool few_splits() const {
    const int cuts = stages() - 1;
    double splits = 1;
    for (int i = 0; i < cuts; ++i)
      splits *= static_cast<double>(static_cast<int>(profile_.layers.size()) - 1 - i) / (i + 1);
    return splits * static_cast<double>(work()) <= static_cast<double>(kMostWork) / 4;
  }

  std::vector<int> lightest(bool by_bytes) const {
    std::vector<double> costs;
    for (const LayerCost& layer : profile_.layers) {
      costs.push_back(by_bytes ? static_cast<double>(layer.saved_bytes + layer.static_bytes())
                               : layer.forward_seconds + layer.backward_seconds);
    }
    return partition_by_bottleneck(costs, stages()).sizes;
  }

  /// Programs do not depend on the split: one without recompute, one with.
  void predict(Plan* plan) {
    if (!plan->operations.empty() && !recomputing_) recomputing_ = plan_program(*plan);
    predict_with(profile_, plan->operations.empty() ? plain_ : *recomputing_,
                 request_.link_bandwidth, request_.link_latency, plan);
  }

  void recompute(Outcome* outcome) {
    BudgetPlan budget = planner_->plan(outcome->plan.sizes, program_, request_.memory_bytes);
    if (!budget.feasible()) {
      outcome->missing = budget;
      return;
    }
    outcome->plan.operations = std::move(budget.operations);
    outcome->plan.offload = std::move(budget.offload);
    predict(&outcome->plan);
  }

  /// Looks at a split; says whether it is the best so far.
  bool look(const std::vector<int>& sizes) {
    if (!seen_.insert(sizes).second) return false;
    left_ -= work();
    Outcome outcome{base_, {}};
    outcome.plan.sizes = sizes;
    predict(&outcome.plan);
    if (request_.memory_bytes > 0 && most(outcome.plan.peak_bytes) > request_.memory_bytes)
      recompute(&outcome);
    if (best_ && !better(outcome, *best_)) return false;
    best_ = std::move(outcome);
    return true;
  }

  void try_all(std::vector<int> sizes, int layers) {
    const int left = stages() - static_cast<int>(sizes.size());
    if (left == 1) {
      sizes.push_back(layers);
      look(sizes);
      return;
    }
    for (int size = 1; size <= layers - left + 1; ++size) {
      sizes.push_back(size);
      try_all(sizes, layers - size);
      sizes.pop_back();
    }
  }

  /// One layer over one boundary, as long as that helps.
  void climb(std::vector<int> sizes) {
    look(sizes);
    for (bool moved = true; moved && left_ > 0;) {
      moved = false;
      for (std::size_t s = 0; s + 1 < sizes.size(); ++s) {
        for (const int by : {-1, 1}) {
          std::vector<int> next = sizes;
          next[s] += by;
          next[s + 1] -= by;
          if (next[s] < 1 || next[s + 1] < 1 || left_ <= 0 || !look(next)) continue;
          sizes = std::move(next);
          moved = true;
        }
      }
    }
  }

  const Profile& profile_;
  const PlanRequest& request_;
  BudgetPlanner* planner_;
  Plan base_;
  Program program_;                     // the schedule's
  Program plain_;                       // lowered
  std::optional<Program> recomputing_;  // the same with R
  std::int64_t left_;
  std::set<std::vector<int>> seen_;
  std::optional<Outcome> best_;
};

/// Recompute is planned often here: with as many units as take some milliseconds.
int units_for(std::size_t layers) {
  const double cubed = std::pow(static_cast<double>(layers), 3);
  return static_cast<int>(std::clamp(5e7 / cubed, 200.0, 2000.0));
}

void check(const PlanRequest& request) {
  const auto refuse = [](const std::string& why) { throw InvalidArgument("plan", why); };
  if (request.ranks < 1) refuse(fmt::format("{} ranks; use 1 or more", request.ranks));
  if (request.global_batch < 1 || request.global_batch > (std::int64_t{1} << 30))
    refuse(fmt::format("a global batch of {}; use 1 to 2^30 samples", request.global_batch));
  if (request.memory_bytes < 0)
    refuse(fmt::format("{} bytes a rank; use 0 for no bound", request.memory_bytes));
  for (const std::string& name : request.schedules) {
    if (find_schedule(name).forward_only) refuse(fmt::format("'{}' does not train", name));
  }
}

/// How many micro-batches to try: of those that make micro-batches of one size, the fewest.
std::vector<int> micro_batch_counts(std::int64_t batch, int most) {
  std::vector<int> counts;
  std::int64_t size = 0;
  for (std::int64_t m = 1; m <= std::min<std::int64_t>(batch, most); ++m) {
    const std::int64_t largest = (batch + m - 1) / m;
    if (std::exchange(size, largest) != largest) counts.push_back(static_cast<int>(m));
  }
  return counts;
}

/// The schedules to try and their chunks.
std::vector<ScheduleSpec> shapes(const PlanRequest& request) {
  std::vector<ScheduleSpec> shapes;
  for (const ScheduleInfo& info : all_schedules()) {
    const auto& wanted = request.schedules;
    if (info.forward_only) continue;
    if (info.asynchronous && wanted.empty() && !request.asynchronous) continue;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), info.name) == wanted.end())
      continue;
    // One rank has no bubble to fill: plain micro-batches are all there is to choose.
    if (request.ranks == 1 && wanted.empty() && info.name != "1f1b") continue;
    for (int chunks = info.default_chunks;
         chunks <= std::min(info.most_chunks, request.most_chunks); ++chunks) {
      shapes.push_back({std::string(info.name), request.ranks, 1, chunks});
      if (info.name == "gpipe") break;  // with more chunks it only sends more
    }
  }
  return shapes;
}

std::string reason(const Outcome& outcome, std::int64_t memory) {
  const bool going_on = find_schedule(outcome.plan.schedule).asynchronous;
  const std::string_view versions = going_on ? " in all their versions" : "";
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  return fmt::format(
      "rank {} would need at least {} of the {}: {} for parameters{}, gradients and optimizer, the "
      "rest for stage {} at its most sparing",
      outcome.missing.rank, bytes(outcome.missing.least_bytes), bytes(memory),
      bytes(outcome.missing.static_bytes), versions, outcome.missing.stage);
}

/// Why a schedule cannot run so few micro-batches; empty: it can.
std::string reason_of_count(const ScheduleSpec& shape, int micro_batches) {
  const int least = least_between_updates(shape.name, shape.ranks);
  if (micro_batches >= least) return "";
  return fmt::format(
      "{} ranks need at least {} micro-batches between updates, and a mini-batch would have {}",
      shape.ranks, least, micro_batches);
}

}  // namespace

PlanSearch search_plans(std::span<const Profile> profiles, const PlanRequest& request) {
  check(request);
  PlanSearch result;
  std::vector<ScheduleSpec> tried;
  const std::size_t layers = scale_profile(profiles, 1, 1).layers.size();
  Plan base;
  base.model = profiles[0].model;
  base.global_batch = request.global_batch;
  base.memory_bytes = request.memory_bytes;
  base.ranks = request.ranks;
  for (const ScheduleSpec& shape : shapes(request)) {
    base.schedule = shape.name;
    base.chunks = shape.chunks;
    const auto stages =
        static_cast<std::size_t>(shape.ranks) * static_cast<std::size_t>(shape.chunks);
    if (stages <= layers) {
      tried.push_back(shape);
      continue;
    }
    result.rejected.push_back(
        {base, fmt::format("{} ranks of {} chunks are {} stages, and there are {} layers",
                           shape.ranks, shape.chunks, stages, layers)});
  }
  for (const int count : micro_batch_counts(request.global_batch, request.most_micro_batches)) {
    const double rows = static_cast<double>(request.global_batch) / count;
    base.micro_batches = count;
    base.micro_batch_size = static_cast<int>(std::ceil(rows));
    const Profile profile = scale_profile(profiles, rows, base.micro_batch_size);
    BudgetPlanner planner(profile, request.offload, units_for(layers));
    for (const ScheduleSpec& shape : tried) {
      base.schedule = shape.name;
      base.chunks = shape.chunks;
      if (const std::string why = reason_of_count(shape, count); !why.empty()) {
        result.rejected.push_back({base, why});
        continue;
      }
      Outcome outcome = SplitSearch(profile, request, &planner, base).best();
      if (outcome.excess() == 0) {
        result.plans.push_back(std::move(outcome.plan));
      } else {
        const std::string why = reason(outcome, request.memory_bytes);
        result.rejected.push_back({std::move(outcome.plan), why});
      }
    }
  }
  std::stable_sort(result.plans.begin(), result.plans.end(),
                   [](const Plan& a, const Plan& b) { return better(a, b); });
  return result;
}

Plan predict(std::span<const Profile> profiles, Plan plan, double link_bandwidth,
             double link_latency) {
  const double rows = static_cast<double>(plan.global_batch) / plan.micro_batches;
  predict_with(scale_profile(profiles, rows, plan.micro_batch_size), plan_program(plan),
               link_bandwidth, link_latency, &plan);
  return plan;
}

Timeline predicted_timeline(std::span<const Profile> profiles, const Plan& plan) {
  const double rows = static_cast<double>(plan.global_batch) / plan.micro_batches;
  const Profile profile = scale_profile(profiles, rows, plan.micro_batch_size);
  const Program program = plan_program(plan);
  Timeline timeline = simulate(program, step_costs(profile, plan, program, 0, 0)).timeline;
  timeline.time_unit = "s";
  return timeline;
}

}  // namespace pipewright
