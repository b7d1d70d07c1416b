#include "pipewright/train/recompute_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/recompute/modes.h"

namespace pipewright {
namespace {

/// Layers count from 1 within the stage.
std::vector<int> checkpoints_of(const Sequence& model, const Strategy& strategy, std::size_t first,
                                std::size_t last) {
  const int layers = static_cast<int>(last - first);
  if (strategy.recompute == RecomputeMode::kEvery) return every(layers, strategy.recompute_every);
  if (strategy.recompute == RecomputeMode::kSqrt) return sqrt_checkpoints(layers);
  std::vector<int> checkpoints = {1};
  if (strategy.recompute != RecomputeMode::kNamed) return checkpoints;
  const auto& named = strategy.checkpoints;
  for (std::size_t i = first + 1; i < last; ++i) {
    const Layer& layer = model.layers()[i];
    const bool is_one = named.empty()
                            ? layer.options.checkpoint
                            : std::find(named.begin(), named.end(), layer.name) != named.end();
    if (is_one) checkpoints.push_back(static_cast<int>(i - first) + 1);
  }
  return checkpoints;
}

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

void check_names(const Sequence& model, const Strategy& strategy) {
  for (const std::string& name : strategy.checkpoints) {
    if (std::any_of(model.layers().begin(), model.layers().end(),
                    [&](const Layer& layer) { return layer.name == name; }))
      continue;
    refuse(fmt::format("checkpoints names '{}', which is no layer of the model", name));
  }
}

void check_budget(const Sequence& model, const Strategy& strategy) {
  if (strategy.memory_budget <= 0)
    refuse(fmt::format("memory_budget = {}; recompute = kBudget needs the bytes a rank may take",
                       strategy.memory_budget));
  const auto& measured = strategy.profile.layers;
  bool same = measured.size() == model.size();
  for (std::size_t i = 0; same && i < model.size(); ++i)
    same = measured[i].name == model.layers()[i].name;
  if (!same) {
    refuse(
        fmt::format("the profile has {} layers and the model {}, or they differ in name; measure "
                    "this model with measure_profile()",
                    measured.size(), model.size()));
  }
}

std::vector<int> sizes_of(const StageLayout& layout) {
  std::vector<int> sizes;
  for (std::size_t s = 0; s + 1 < layout.first_layer.size(); ++s)
    sizes.push_back(static_cast<int>(layout.first_layer[s + 1] - layout.first_layer[s]));
  return sizes;
}

BudgetPlan budget_plan(const Strategy& strategy, const StageLayout& layout,
                       const Program& program) {
  if (strategy.offload && strategy.profile.host_bandwidth <= 0)
    refuse("offload with recompute = kBudget needs a profile that was measured on a GPU");
  BudgetPlanner planner(strategy.profile, strategy.offload);
  BudgetPlan plan = planner.plan(sizes_of(layout), program, strategy.memory_budget);
  if (plan.feasible()) return plan;
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  refuse(fmt::format(
      "memory_budget = {} is too little for rank {}: its parameters, gradients and optimizer take "
      "{}, and stage {} with {} micro-batches in flight would do with {} in all",
      bytes(strategy.memory_budget), plan.rank, bytes(plan.static_bytes), plan.stage,
      stage_load(program, plan.stage).in_flight, bytes(plan.least_bytes)));
}

/// A plan's own, as they were made for these stages.
const std::vector<std::vector<Operation>>& planned_operations(const Strategy& strategy,
                                                              const StageLayout& layout) {
  const std::vector<int> sizes = sizes_of(layout);
  bool fits = strategy.operations.size() == sizes.size();
  for (std::size_t s = 0; fits && s < sizes.size(); ++s) {
    Chain chain;
    chain.layers.resize(static_cast<std::size_t>(sizes[s]));
    fits = std::all_of(strategy.operations[s].begin(), strategy.operations[s].end(),
                       [&](const Operation& o) { return o.layer <= sizes[s]; });
    if (fits) run_operations(chain, strategy.operations[s]);  // throws where they cannot run
  }
  if (!fits) {
    refuse(
        fmt::format("the plan's operations are of {} stages and do not fit these {}; use the "
                    "plan's sizes",
                    strategy.operations.size(), sizes.size()));
  }
  return strategy.operations;
}

std::vector<std::vector<Operation>> block_operations(const Sequence& model,
                                                     const Strategy& strategy,
                                                     const StageLayout& layout,
                                                     const Program& program) {
  const bool by_blocks = strategy.recompute == RecomputeMode::kEvery ||
                         strategy.recompute == RecomputeMode::kSqrt ||
                         strategy.recompute == RecomputeMode::kNamed;
  std::vector<std::vector<Operation>> result;
  for (int stage = 0; stage < layout.num_stages(); ++stage) {
    const std::size_t first = layout.first_layer[static_cast<std::size_t>(stage)];
    const std::size_t last = layout.first_layer[static_cast<std::size_t>(stage) + 1];
    const bool save_last = by_blocks && stage_load(program, stage).in_flight == 1;
    result.push_back(keep_checkpoints(static_cast<int>(last - first),
                                      checkpoints_of(model, strategy, first, last), save_last));
  }
  return result;
}

void check_offload(const Strategy& strategy, const SharedModel& shared) {
  if (!strategy.offload) return;
  if (strategy.recompute == RecomputeMode::kNone)
    refuse("offload moves what recompute keeps; choose a recompute mode with it");
  for (int stage = 0; stage < shared.layout.num_stages(); ++stage) {
    if (shared.layout.device_of(stage).is_cpu())
      refuse(fmt::format(
          "offload moves what a GPU keeps to the host, and stage {} is there already", stage));
  }
}

}  // namespace

void plan_recompute(const Strategy& strategy, const Program& program, SharedModel* shared) {
  check_offload(strategy, *shared);
  if (strategy.recompute == RecomputeMode::kBudget) {
    check_budget(*shared->model, strategy);
    BudgetPlan plan = budget_plan(strategy, shared->layout, program);
    shared->recompute = std::move(plan.operations);
    shared->offload = std::move(plan.offload);
    return;
  }
  if (strategy.recompute == RecomputeMode::kPlanned) {
    shared->recompute = planned_operations(strategy, shared->layout);
    shared->offload = strategy.offload_stages;
    shared->offload.resize(shared->recompute.size());
    return;
  }
  if (strategy.recompute == RecomputeMode::kNamed) check_names(*shared->model, strategy);
  shared->recompute = block_operations(*shared->model, strategy, shared->layout, program);
  shared->offload.assign(shared->recompute.size(), strategy.offload ? 1 : 0);
}

}  // namespace pipewright
