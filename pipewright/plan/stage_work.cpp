#include "pipewright/plan/stage_work.h"

#include <algorithm>

#include "pipewright/sim/held_versions.h"

namespace pipewright {
namespace {

/// `split`: backwards are in halves, and the next layer's weight half still holds what it read.
/// Else that is gone by this layer's backward, though what was saved counts it until its end.
ChainLayer chain_layer(const LayerCost& cost, bool split) {
  ChainLayer layer;
  layer.forward = cost.forward_seconds;
  layer.backward = cost.backward_seconds;
  layer.output_bytes = cost.output_bytes;
  layer.saved_bytes = std::max(cost.saved_bytes, cost.output_bytes);
  layer.forward_temp_bytes = cost.forward_temp_bytes;
  layer.backward_temp_bytes =
      std::max<std::int64_t>(0, cost.backward_temp_bytes - (split ? 0 : cost.gone_bytes));
  layer.idle_bytes = std::min(cost.idle_bytes, cost.output_bytes);
  return layer;
}

std::int64_t sum(const Profile& profile, LayerRange layers,
                 std::initializer_list<std::int64_t LayerCost::*> members) {
  std::int64_t bytes = 0;
  for (std::size_t i = layers.first; i < layers.last; ++i) {
    for (const auto member : members) bytes += profile.layers[i].*member;
  }
  return bytes;
}

std::int64_t static_bytes(const Profile& profile, LayerRange layers) {
  std::int64_t bytes = 0;
  for (std::size_t i = layers.first; i < layers.last; ++i)
    bytes += profile.layers[i].static_bytes();
  return bytes;
}

std::int64_t weight_bytes(const Profile& profile, LayerRange layers) {
  return sum(profile, layers, {&LayerCost::parameter_bytes});
}

std::int64_t input_bytes(const Profile& profile, LayerRange layers) {
  return layers.first == 0 ? profile.input_bytes : profile.layers[layers.first - 1].output_bytes;
}

StageChain stage_chain(const Profile& profile, LayerRange layers, bool split) {
  StageChain stage;
  for (std::size_t i = layers.first; i < layers.last; ++i)
    stage.chain.layers.push_back(chain_layer(profile.layers[i], split));
  stage.input_bytes = input_bytes(profile, layers);
  stage.skip_bytes = sum(profile, layers, {&LayerCost::skip_bytes});
  stage.host_bandwidth = profile.host_bandwidth;
  return stage;
}

std::int64_t output_bytes(const Profile& profile, LayerRange layers) {
  return profile.layers[layers.last - 1].output_bytes;
}

/// A parameter's gradient may wait to be added while the layer before already runs backward.
std::int64_t waiting_gradient(const Profile& profile, LayerRange layers) {
  std::int64_t most = 0;
  for (std::size_t i = layers.first; i < layers.last; ++i)
    most = std::max(most, profile.layers[i].gradient_bytes);
  return most;
}

/// Where the next rank is ahead, its gradient of another micro-batch is there while one is in use.
std::int64_t early_gradient(const Profile& profile, LayerRange layers, const Program& program) {
  const bool comes = layers.last < profile.layers.size() && program.num_micro_batches > 1;
  return comes ? output_bytes(profile, layers) : 0;
}

std::int64_t half_bytes(const Profile& profile, LayerRange layers) {
  return sum(profile, layers, {&LayerCost::weight_half_bytes});
}

}  // namespace

std::vector<LayerRange> layer_ranges(const std::vector<int>& sizes) {
  std::vector<LayerRange> ranges;
  std::size_t next = 0;
  for (const int size : sizes) {
    ranges.push_back({next, next + static_cast<std::size_t>(size)});
    next = ranges.back().last;
  }
  return ranges;
}

StageLoad stage_load(const Program& program, int stage) {
  StageLoad now;
  StageLoad most;
  const auto rank = static_cast<std::size_t>(program.placement[static_cast<std::size_t>(stage)]);
  for (const Instruction i : program.ranks[rank]) {
    if (i.stage() != stage) continue;
    if (i.kind() == Kind::kForward) most.in_flight = std::max(most.in_flight, ++now.in_flight);
    if (i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardInput) --now.in_flight;
    if (i.kind() == Kind::kBackwardInput) most.halves = std::max(most.halves, ++now.halves);
    if (i.kind() == Kind::kBackwardWeight) --now.halves;
  }
  return most;
}

int early_inputs(const Program& program, int stage) {
  if (stage == 0) return 0;
  return std::max(1,
                  stage_load(program, stage - 1).in_flight - stage_load(program, stage).in_flight);
}

namespace {

/// Losses that wait to be told: all of a step; of an asynchronous schedule, of an update and what
/// is under way.
int lying_losses(const Program& program) {
  if (!program.is_asynchronous()) return program.num_micro_batches;
  const auto& last = program.ranks[static_cast<std::size_t>(program.placement.back())];
  int backwards = 0;
  int most = 0;
  for (const Instruction i : last) {
    if (i.kind() == Kind::kBackward) most = std::max(most, ++backwards);
    if (i.kind() == Kind::kStep) backwards = 0;
  }
  return most + program.num_ranks();
}

/// What lies at a stage beside the micro-batches it works on: inputs that came early, and losses.
std::int64_t lying_bytes(const Profile& profile, LayerRange layers, const Program& program,
                         int stage) {
  std::int64_t bytes = early_inputs(program, stage) * input_bytes(profile, layers);
  if (layers.last == profile.layers.size()) bytes += lying_losses(program) * profile.loss_bytes;
  return bytes;
}

}  // namespace

StageCost stage_cost(const Profile& profile, LayerRange layers, const Program& program, int stage,
                     const std::vector<Operation>& operations, bool offload) {
  const StageChain chain = stage_chain(profile, layers, stage_load(program, stage).halves > 0);
  const OperationsCost work =
      offload ? run_offloaded(chain, operations) : run_operations(chain.chain, operations);
  StageCost cost;
  double again = work.backward.time;  // forwards between the backwards
  for (std::size_t i = layers.first; i < layers.last; ++i) {
    const LayerCost& layer = profile.layers[i];
    again -= layer.backward_seconds;
    cost.backward_input += layer.backward_input_seconds;
    cost.backward_weight += layer.backward_weight_seconds;
    cost.step += layer.step_seconds;
  }
  cost.forward = work.forward.time;
  cost.recompute = work.recompute.time;
  cost.backward = work.backward.time;
  cost.backward_input += std::max(0.0, again);
  // Held from F to B beside what the operations hold; where the input is on the host, their
  // temporaries count it.
  const auto boundary = static_cast<double>(chain.skip_bytes + (offload ? 0 : chain.input_bytes));
  const auto held = static_cast<double>(work.recompute.held_bytes);
  cost.boundary_bytes = boundary + static_cast<double>(work.forward.held_bytes);
  cost.activation_bytes = boundary + held;
  cost.weight_half_bytes = static_cast<double>(half_bytes(profile, layers));
  cost.static_bytes = static_cast<double>(static_bytes(profile, layers) +
                                          lying_bytes(profile, layers, program, stage));
  cost.weight_bytes = static_cast<double>(weight_bytes(profile, layers));
  cost.forward_temp_bytes = static_cast<double>(work.forward.peak_bytes - work.forward.held_bytes);
  cost.recompute_temp_bytes = static_cast<double>(work.recompute.peak_bytes) - held;
  if (layers.last < profile.layers.size()) {  // the gradient of another micro-batch may be there
    cost.forward_temp_bytes += static_cast<double>(output_bytes(profile, layers));
    cost.recompute_temp_bytes += static_cast<double>(output_bytes(profile, layers));
  }
  cost.weight_temp_bytes = static_cast<double>(waiting_gradient(profile, layers) +
                                               early_gradient(profile, layers, program));
  cost.backward_temp_bytes =
      static_cast<double>(work.backward.peak_bytes) - held + cost.weight_temp_bytes;
  return cost;
}

const StageRecompute& BudgetPlanner::stage(LayerRange layers, const StageLoad& load,
                                           std::int64_t budget) {
  const bool split = load.halves > 0;
  const auto key = std::tuple(layers, load.in_flight, split, budget);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  StageChain chain = stage_chain(profile_, layers, split);
  chain.in_flight = load.in_flight;
  if (!offload_) chain.host_bandwidth = 0;
  return known_.emplace(key, plan_stage(chain, budget, most_units_)).first->second;
}

BudgetPlan BudgetPlanner::plan(const std::vector<int>& sizes, const Program& program,
                               std::int64_t memory_bytes) {
  const std::vector<LayerRange> ranges = layer_ranges(sizes);
  std::vector<std::int64_t> fixed(program.ranks.size());
  const std::vector<int> versions = most_versions(program);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const auto rank = static_cast<std::size_t>(program.placement[s]);
    fixed[rank] += static_bytes(profile_, ranges[s]) +
                   (versions[rank] - 1) * weight_bytes(profile_, ranges[s]);
  }
  const auto chunks = static_cast<std::int64_t>(std::max(program.num_chunks(), 1));
  BudgetPlan result;
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const int rank = program.placement[s];
    const StageLoad load = stage_load(program, static_cast<int>(s));
    const std::int64_t aside = lying_bytes(profile_, ranges[s], program, static_cast<int>(s)) +
                               waiting_gradient(profile_, ranges[s]) +
                               early_gradient(profile_, ranges[s], program) +
                               load.halves * half_bytes(profile_, ranges[s]);
    const std::int64_t of_rank = fixed[static_cast<std::size_t>(rank)];
    const StageRecompute& planned =
        stage(ranges[s], load, (memory_bytes - of_rank) / chunks - aside);
    if (planned.feasible) {
      result.operations.push_back(planned.plan.operations);
      result.offload.push_back(planned.offload ? 1 : 0);
      continue;
    }
    result.operations.clear();
    result.rank = rank;
    result.stage = static_cast<int>(s);
    result.static_bytes = of_rank;
    result.least_bytes = of_rank + chunks * (planned.least_budget_bytes + aside);
    return result;
  }
  return result;
}

}  // namespace pipewright
