#include "pipewright/run/what_if.h"

#include <algorithm>
#include <span>
#include <utility>

#include "pipewright/partition/partition.h"
#include "pipewright/plan/search.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

constexpr std::int64_t kMostWork = 4'000'000;
constexpr int kRecomputeUnits = 500;

int ceil_divide(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

std::int64_t work_of(const Plan& plan) {
  return 3 * static_cast<std::int64_t>(plan.sizes.size()) * plan.micro_batches;
}

std::vector<std::vector<Operation>> whole_recompute(const std::vector<int>& sizes) {
  std::vector<std::vector<Operation>> operations;
  operations.reserve(sizes.size());
  for (const int size : sizes) operations.push_back(keep_checkpoints(size, {1}, false));
  return operations;
}

}  // namespace

std::int64_t most_bytes(const Plan& plan) {
  return plan.peak_bytes.empty()
             ? 0
             : *std::max_element(plan.peak_bytes.begin(), plan.peak_bytes.end());
}

WhatIf::WhatIf(MeasuredModel model)
    : model_(std::move(model)), baseline_(predicted_as_is(model_.plan)), work_left_(kMostWork) {}

Plan WhatIf::predicted_as_is(Plan plan) const {
  return predict(std::span(&model_.profile, 1), std::move(plan));
}

Plan WhatIf::predicted(Plan plan) const {
  if (!plan.operations.empty()) plan_recompute(&plan);
  return predicted_as_is(std::move(plan));
}

/// Operations fit their stages alone: those of the run for the run's stages, for others new ones.
void WhatIf::plan_recompute(Plan* plan) const {
  if (plan->sizes == model_.plan.sizes && !model_.plan.operations.empty()) {
    plan->operations = model_.plan.operations;
    plan->offload = model_.plan.offload;
    return;
  }
  plan->operations = whole_recompute(plan->sizes);
  plan->offload.assign(plan->sizes.size(), 0);
  if (plan->memory_bytes == 0) return;
  const Program program = make_schedule({.name = plan->schedule,
                                         .ranks = plan->ranks,
                                         .micro_batches = plan->micro_batches,
                                         .chunks = plan->chunks});
  BudgetPlanner planner(model_.profile, false, kRecomputeUnits);
  BudgetPlan budget = planner.plan(plan->sizes, program, plan->memory_bytes);
  if (!budget.feasible()) return;
  plan->operations = std::move(budget.operations);
  plan->offload = std::move(budget.offload);
  plan->offload.resize(plan->sizes.size());
}

Plan WhatIf::with_schedule(Plan plan, const std::string& name, int chunks) const {
  plan.schedule = name;
  if (plan.chunks != chunks) {
    std::vector<double> costs;
    for (const LayerCost& layer : model_.profile.layers)
      costs.push_back(layer.forward_seconds + layer.backward_seconds);
    plan.chunks = chunks;
    plan.sizes = partition_by_bottleneck(costs, plan.ranks * chunks).sizes;
  }
  return predicted(std::move(plan));
}

Plan WhatIf::with_micro_batches(Plan plan, int count) const {
  plan.micro_batches = count;
  plan.micro_batch_size = ceil_divide(plan.global_batch, count);
  return predicted(std::move(plan));
}

Plan WhatIf::with_batch(Plan plan, int times) const {
  plan.global_batch *= times;
  plan.micro_batches *= times;
  return predicted(std::move(plan));
}

Plan WhatIf::without_recompute(Plan plan) const {
  plan.operations.clear();
  plan.offload.clear();
  return predicted(std::move(plan));
}

Plan WhatIf::with_whole_recompute(Plan plan) const {
  plan.operations = whole_recompute(plan.sizes);
  plan.offload.assign(plan.sizes.size(), 0);
  return predicted_as_is(std::move(plan));
}

Plan WhatIf::with_best_split(Plan plan) {
  Plan best = std::move(plan);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s + 1 < best.sizes.size(); ++s) {
      for (const int by : {-1, 1}) {
        Plan next = best;
        next.sizes[s] += by;
        next.sizes[s + 1] -= by;
        if (next.sizes[s] < 1 || next.sizes[s + 1] < 1) continue;
        if ((work_left_ -= work_of(next)) < 0) return best;
        next = predicted(std::move(next));
        if (!fits(next) || !(next.step_seconds < best.step_seconds * (1 - 1e-9))) continue;
        best = std::move(next);
        moved = true;
      }
    }
  }
  return best;
}

bool WhatIf::fits(const Plan& plan) const {
  return model_.plan.memory_bytes == 0 || most_bytes(plan) <= model_.plan.memory_bytes;
}

}  // namespace pipewright
