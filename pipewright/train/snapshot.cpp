#include "pipewright/train/snapshot.h"

#include <fmt/format.h>

#include <set>

#include "pipewright/train/tensor_bytes.h"

namespace pipewright {
namespace {

void take_merged(Training* training, std::size_t layer, const NamedTensor& named,
                 LayerSnapshot* into) {
  if (training->position().num_merged == 0) return;
  const TiedUse* use = find_tied_use(training->shared(), layer, named.tensor);
  const torch::Tensor& gradient = use != nullptr ? use->gradient : named.tensor.grad();
  if (!gradient.defined()) return;
  const std::string name = merged_gradient_name(named.own_name, training->grid().replica);
  into->gradients.emplace_back(name, host_copy(name, gradient));
}

/// Replicas have the same weights and, unless it is sharded, the same optimizer; only what a merge
/// under way has added up is of each its own.
void take_layer(Training* training, std::size_t layer, bool weights_only, LayerSnapshot* into) {
  const int stage = training->shared().layout.stage_of(layer);
  const auto* optimizer = training->updater().optimizers()[static_cast<std::size_t>(stage)];
  const bool is_first_replica = training->grid().replica == 0;
  const bool has_states = is_first_replica || training->strategy().shard_optimizer;
  for (const NamedTensor& named : training->tensor_names().of(training->model(), layer)) {
    if (named.is_first() && is_first_replica)
      into->weights.emplace_back(named.name, host_copy(named.name, named.tensor));
    if (weights_only || !named.is_parameter) continue;
    take_merged(training, layer, named, into);
    if (!named.is_first() || optimizer == nullptr || !has_states) continue;
    if (auto state = pack_state(*optimizer, named.tensor))
      into->states.emplace_back(named.name, std::move(*state));
  }
}

}  // namespace

std::string merged_gradient_name(const std::string& use, int replica) {
  return fmt::format("{}/{}{}", use, kMergedGradient, replica);
}

TiedUse* find_tied_use(const SharedModel& shared, std::size_t layer,
                       const torch::Tensor& parameter) {
  for (const auto& use : shared.tied_uses) {
    if (use->layer == layer && use->parameter.is_same(parameter)) return use.get();
  }
  return nullptr;
}

Snapshot take_snapshot(Training* training, bool weights_only) {
  Snapshot snapshot;
  snapshot.layers.resize(training->model().size());
  const auto& first = training->shared().layout.first_layer;
  training->pipeline().on_every_stage([&](StageRunner& runner) {
    const MemoryScope outside(MemoryMeter::kOutside);
    const auto stage = static_cast<std::size_t>(runner.stage());
    for (std::size_t layer = first[stage]; layer < first[stage + 1]; ++layer)
      take_layer(training, layer, weights_only, &snapshot.layers[layer]);
  });
  return snapshot;
}

std::int64_t Snapshot::bytes() const {
  std::size_t sum = 0;
  for (const LayerSnapshot& layer : layers) {
    for (const auto& [name, tensor] : layer.weights) sum += tensor.nbytes();
    for (const auto& [name, tensor] : layer.gradients) sum += tensor.nbytes();
    for (const auto& [name, packed] : layer.states) sum += packed.archive.size();
  }
  return static_cast<std::int64_t>(sum);
}

std::vector<std::string> state_types(const Snapshot& snapshot) {
  std::set<std::string> types;
  for (const LayerSnapshot& layer : snapshot.layers) {
    for (const auto& [name, state] : layer.states) types.insert(state.type);
  }
  return {types.begin(), types.end()};
}

std::vector<TensorView> views_of(const LayerSnapshot& layer, Part part,
                                 std::vector<torch::Tensor>* held) {
  std::vector<TensorView> views;
  if (part == Part::kWeights) {
    for (const auto& [name, tensor] : layer.weights) views.push_back(view_of(name, tensor));
    return views;
  }
  for (const auto& [name, tensor] : layer.gradients) views.push_back(view_of(name, tensor));
  for (const auto& [parameter, packed] : layer.states) {
    for (const auto& [key, tensor] : unpack_state(packed, parameter)) {
      held->push_back(tensor);
      views.push_back(view_of(parameter + "/" + key, tensor));
    }
  }
  return views;
}

}  // namespace pipewright
