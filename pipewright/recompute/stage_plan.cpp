#include "pipewright/recompute/stage_plan.h"

#include <algorithm>
#include <limits>

#include "pipewright/recompute/modes.h"

namespace pipewright {
namespace {

std::int64_t stage_bytes(const StageChain& stage, const OperationsCost& cost) {
  const std::int64_t waiting = stage.in_flight - 1;
  return waiting * (cost.forward.held_bytes + stage.input_bytes) + stage.input_bytes +
         cost.peak_bytes;
}

/// Plans that a stage with several micro-batches in flight may want though they are never the
/// fastest for one: those that hold nothing of their last block.
std::vector<RecomputePlan> sparing_plans(const StageChain& stage) {
  const int layers = stage.chain.size();
  std::vector<RecomputePlan> plans;
  for (int n = 1; n <= layers; ++n) {
    RecomputePlan plan;
    plan.feasible = true;
    plan.exact = false;
    plan.operations = keep_checkpoints(layers, every(layers, n), false);
    plan.cost = run_operations(stage.chain, plan.operations);
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace

StageRecompute plan_stage(const StageChain& stage, std::int64_t budget_bytes, int most_units) {
  StageRecompute result;
  const std::int64_t for_one = budget_bytes - stage.in_flight * stage.input_bytes;
  std::vector<RecomputePlan> plans = recompute_frontier(stage.chain, for_one, most_units);
  if (stage.in_flight > 1) {
    for (auto& plan : sparing_plans(stage)) plans.push_back(std::move(plan));
  }
  if (plans.empty())
    plans.push_back(optimal_recompute(stage.chain, least_budget(stage.chain), most_units));
  result.least_budget_bytes = std::numeric_limits<std::int64_t>::max();
  for (const RecomputePlan& plan : plans) {
    const std::int64_t bytes = stage_bytes(stage, plan.cost);
    result.least_budget_bytes = std::min(result.least_budget_bytes, bytes);
    if (bytes > budget_bytes) continue;
    const bool better = !result.feasible || plan.cost.time < result.plan.cost.time ||
                        (plan.cost.time == result.plan.cost.time && bytes < result.peak_bytes);
    if (!better) continue;
    result.feasible = true;
    result.peak_bytes = bytes;
    result.plan = plan;
  }
  return result;
}

}  // namespace pipewright
