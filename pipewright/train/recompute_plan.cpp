#include "pipewright/train/recompute_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/recompute/stage_plan.h"

namespace pipewright {
namespace {

/// The most micro-batches a stage holds between F and B (or I).
int most_in_flight(const Program& program, int stage) {
  int now = 0;
  int most = 0;
  for (const auto& list : program.ranks) {
    for (const Instruction i : list) {
      if (i.stage() != stage) continue;
      if (i.kind() == Kind::kForward) most = std::max(most, ++now);
      if (i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardInput) --now;
    }
  }
  return most;
}

/// Layers count from 1 within the stage.
std::vector<int> checkpoints_of(const Sequence& model, const Strategy& strategy, std::size_t first,
                                std::size_t last) {
  const int layers = static_cast<int>(last - first);
  if (strategy.recompute == RecomputeMode::kEvery) return every(layers, strategy.recompute_every);
  if (strategy.recompute == RecomputeMode::kSqrt) return sqrt_checkpoints(layers);
  std::vector<int> checkpoints = {1};
  if (strategy.recompute != RecomputeMode::kNamed) return checkpoints;
  for (std::size_t i = first + 1; i < last; ++i) {
    if (model.layers()[i].options.checkpoint)
      checkpoints.push_back(static_cast<int>(i - first) + 1);
  }
  return checkpoints;
}

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

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

ChainLayer chain_layer(const LayerCost& cost) {
  return {cost.forward_seconds,    cost.backward_seconds,
          cost.output_bytes,       std::max(cost.saved_bytes, cost.output_bytes),
          cost.forward_temp_bytes, cost.backward_temp_bytes};
}

StageChain stage_chain(const Profile& profile, const StageLayout& layout, const Program& program,
                       int stage) {
  const std::size_t first = layout.first_layer[static_cast<std::size_t>(stage)];
  const std::size_t last = layout.first_layer[static_cast<std::size_t>(stage) + 1];
  StageChain chain;
  chain.in_flight = most_in_flight(program, stage);
  if (first > 0) chain.input_bytes = profile.layers[first - 1].output_bytes;
  for (std::size_t i = first; i < last; ++i)
    chain.chain.layers.push_back(chain_layer(profile.layers[i]));
  return chain;
}

/// What a rank's stages take at all times: parameters, their gradients, the optimizer's state.
std::int64_t static_bytes(const Profile& profile, const StageLayout& layout, int rank) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerCost& cost = profile.layers[i];
    if (layout.rank_of(layout.stage_of(i)) == rank)
      bytes += cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes;
  }
  return bytes;
}

std::vector<std::vector<Operation>> budget_operations(const Strategy& strategy,
                                                      const StageLayout& layout,
                                                      const Program& program) {
  std::vector<std::vector<Operation>> result;
  for (int stage = 0; stage < layout.num_stages(); ++stage) {
    const int rank = layout.rank_of(stage);
    const auto chunks = std::count(layout.placement.begin(), layout.placement.end(), rank);
    const StageChain chain = stage_chain(strategy.profile, layout, program, stage);
    const std::int64_t fixed = static_bytes(strategy.profile, layout, rank);
    // One input more than are held may already have come.
    const std::int64_t budget =
        (strategy.memory_budget - fixed) / static_cast<std::int64_t>(chunks) - chain.input_bytes;
    const StageRecompute plan = plan_stage(chain, budget);
    if (!plan.feasible) {
      const std::int64_t least =
          fixed + static_cast<std::int64_t>(chunks) * (plan.least_budget_bytes + chain.input_bytes);
      refuse(
          fmt::format("memory_budget = {} is too little for rank {}: its parameters, gradients and "
                      "optimizer take "
                      "{}, and stage {} with {} micro-batches in flight would do with {} in all",
                      format_bytes(static_cast<double>(strategy.memory_budget)), rank,
                      format_bytes(static_cast<double>(fixed)), stage, chain.in_flight,
                      format_bytes(static_cast<double>(least))));
    }
    result.push_back(plan.plan.operations);
  }
  return result;
}

}  // namespace

std::vector<std::vector<Operation>> recompute_operations(const Sequence& model,
                                                         const Strategy& strategy,
                                                         const StageLayout& layout,
                                                         const Program& program) {
  if (strategy.recompute == RecomputeMode::kBudget) {
    check_budget(model, strategy);
    return budget_operations(strategy, layout, program);
  }
  const bool by_blocks = strategy.recompute == RecomputeMode::kEvery ||
                         strategy.recompute == RecomputeMode::kSqrt ||
                         strategy.recompute == RecomputeMode::kNamed;
  std::vector<std::vector<Operation>> result;
  for (int stage = 0; stage < layout.num_stages(); ++stage) {
    const std::size_t first = layout.first_layer[static_cast<std::size_t>(stage)];
    const std::size_t last = layout.first_layer[static_cast<std::size_t>(stage) + 1];
    const bool save_last = by_blocks && most_in_flight(program, stage) == 1;
    result.push_back(keep_checkpoints(static_cast<int>(last - first),
                                      checkpoints_of(model, strategy, first, last), save_last));
  }
  return result;
}

}  // namespace pipewright
