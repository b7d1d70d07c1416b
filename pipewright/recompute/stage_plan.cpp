#include "pipewright/recompute/stage_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pipewright/recompute/modes.h"

namespace pipewright {
namespace {

std::int64_t stage_bytes(const StageChain& stage, const OperationsCost& cost) {
  const std::int64_t aside = stage.input_bytes + stage.skip_bytes;
  return (stage.in_flight - 1) * (cost.forward.held_bytes + aside) + aside + cost.peak_bytes;
}

/// The chain as the device sees it where kept inputs are elsewhere: an output costs nothing but
/// while a layer reads or writes it, and one more is on its way back.
Chain offloaded(const StageChain& stage) {
  Chain chain = stage.chain;
  std::int64_t largest = stage.input_bytes;
  for (const ChainLayer& layer : stage.chain.layers)
    largest = std::max(largest, layer.output_bytes);
  std::int64_t input = stage.input_bytes;
  for (ChainLayer& layer : chain.layers) {
    const std::int64_t output = std::exchange(layer.output_bytes, 0);
    layer.forward_temp_bytes += input + output + largest;
    layer.backward_temp_bytes += input + output + largest;
    input = output;
  }
  return chain;
}

/// The stage without offload: what its input takes is in the chain's temporaries.
StageChain as_offloaded(const StageChain& stage) {
  StageChain moved;
  moved.chain = offloaded(stage);
  moved.skip_bytes = stage.skip_bytes;
  moved.in_flight = stage.in_flight;
  return moved;
}

/// Bytes of the inputs that a list keeps, once each time.
double kept_bytes(const StageChain& stage, const std::vector<Operation>& operations) {
  double bytes = 0;
  for (const Operation& operation : operations) {
    if (operation.op != LayerOp::kForwardKeep) continue;
    bytes += static_cast<double>(operation.layer == 1
                                     ? stage.input_bytes
                                     : stage.chain.layer(operation.layer - 1).output_bytes);
  }
  return bytes;
}

void add_copies(double seconds, OperationsCost* cost) {
  const double out = std::max(0.0, seconds - cost->forward.time);
  const double back = std::max(0.0, seconds - cost->recompute.time - cost->backward.time);
  cost->forward.time += out;
  cost->backward.time += back;
  cost->time += out + back;
}

/// The plain ways, checkpoints at equal distances. Where several micro-batches are in flight one
/// that holds nothing of its last block may win, though it is never the fastest for one; and where
/// the planner's bytes are rounded, it may have missed one by little.
std::vector<RecomputePlan> checkpoint_plans(const StageChain& stage) {
  const int layers = stage.chain.size();
  std::vector<std::vector<int>> ways = {sqrt_checkpoints(layers)};
  for (int n = 1; n <= layers; ++n) ways.push_back(every(layers, n));
  std::vector<RecomputePlan> plans;
  for (const std::vector<int>& checkpoints : ways) {
    for (const bool save_last : {false, true}) {
      RecomputePlan plan;
      plan.feasible = true;
      plan.exact = false;
      plan.operations = keep_checkpoints(layers, checkpoints, save_last);
      plan.cost = run_operations(stage.chain, plan.operations);
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

/// The best of the plans that fit, or the least that one would do with.
StageRecompute choose(const StageChain& stage, std::int64_t budget_bytes,
                      const std::vector<RecomputePlan>& plans) {
  StageRecompute result;
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

std::vector<RecomputePlan> plans_of(const StageChain& stage, std::int64_t budget_bytes,
                                    int most_units) {
  const std::int64_t for_one =
      budget_bytes - stage.in_flight * (stage.input_bytes + stage.skip_bytes);
  std::vector<RecomputePlan> plans = recompute_frontier(stage.chain, for_one, most_units);
  for (auto& plan : checkpoint_plans(stage)) plans.push_back(std::move(plan));
  if (for_one < least_budget(stage.chain))
    plans.push_back(optimal_recompute(stage.chain, least_budget(stage.chain), most_units));
  return plans;
}

}  // namespace

OperationsCost run_offloaded(const StageChain& stage, const std::vector<Operation>& operations) {
  OperationsCost cost = run_operations(offloaded(stage), operations);
  add_copies(kept_bytes(stage, operations) / stage.host_bandwidth, &cost);
  return cost;
}

StageRecompute plan_stage(const StageChain& stage, std::int64_t budget_bytes, int most_units) {
  StageRecompute plain = choose(stage, budget_bytes, plans_of(stage, budget_bytes, most_units));
  if (stage.host_bandwidth <= 0) return plain;
  const StageChain moved = as_offloaded(stage);
  std::vector<RecomputePlan> plans = plans_of(moved, budget_bytes, most_units);
  for (RecomputePlan& plan : plans)
    add_copies(kept_bytes(stage, plan.operations) / stage.host_bandwidth, &plan.cost);
  StageRecompute offload = choose(moved, budget_bytes, plans);
  offload.offload = true;
  const std::int64_t least = std::min(plain.least_budget_bytes, offload.least_budget_bytes);
  const bool wins =
      offload.feasible && (!plain.feasible || offload.plan.cost.time < plain.plan.cost.time);
  StageRecompute& chosen = wins ? offload : plain;
  chosen.least_budget_bytes = least;
  return std::move(chosen);
}

}  // namespace pipewright
