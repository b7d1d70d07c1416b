#include "pipewright/exec/shared_model.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace pipewright {

int StageLayout::stage_of(std::size_t layer) const {
  const auto after = std::upper_bound(first_layer.begin(), first_layer.end(), layer);
  return static_cast<int>(after - first_layer.begin()) - 1;
}

namespace {

/// The parameters that several layers use, each use in layer order, and between which stages their
/// values and gradients go.
void share_tied(const Sequence& model, const Outline& outline, SharedModel* shared) {
  std::unordered_map<int, int> num_uses;
  for (const auto& layer : outline)
    for (const TensorOutline& tensor : layer) ++num_uses[tensor.number];
  std::unordered_map<int, int> owners;             // by number: the stage of the first use
  std::unordered_map<int, torch::Tensor> tensors;  // by number: those of this process
  std::vector<int> numbers;                        // by use
  std::set<std::pair<int, int>> served;            // numbers and the ranks that get their values
  for (std::size_t i = 0; i < outline.size(); ++i) {
    const auto& module = model.layers()[i].module;
    const auto here = module ? module->named_parameters() : decltype(module->named_parameters())();
    for (const TensorOutline& tensor : outline[i]) {
      if (!tensor.is_parameter || !tensor.requires_grad || num_uses[tensor.number] < 2) continue;
      const int user = shared->layout.stage_of(i);
      const int owner = owners.try_emplace(tensor.number, user).first->second;
      const int use = static_cast<int>(shared->tied_uses.size());
      if (user != owner) {
        const bool is_first = served.emplace(tensor.number, shared->layout.rank_of(user)).second;
        shared->tied_routes.push_back({use, owner, user, is_first});
      }
      if (module) tensors[tensor.number] = here[tensor.name];
      shared->tied_uses.push_back(std::make_unique<TiedUse>(TiedUse{i, {}, {}}));
      numbers.push_back(tensor.number);
    }
  }
  for (std::size_t use = 0; use < numbers.size(); ++use)
    shared->tied_uses[use]->parameter = tensors[numbers[use]];
}

bool learns(const std::vector<TensorOutline>& layer) {
  return std::any_of(layer.begin(), layer.end(), [](const TensorOutline& tensor) {
    return tensor.is_parameter && tensor.requires_grad;
  });
}

}  // namespace

SharedModel share_model(const Sequence& model, const Outline& outline, Loss loss,
                        StageLayout layout) {
  SharedModel shared;
  shared.model = &model;
  shared.layout = std::move(layout);
  shared.loss = std::move(loss);
  bool flows = false;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Layer& layer = model.layers()[i];
    for (const auto& name : layer.options.stash) {
      shared.skip_index[name] = static_cast<int>(shared.skips.size());
      shared.skips.push_back({i, i});
    }
    for (const auto& name : layer.options.pop) {
      shared.skips[static_cast<std::size_t>(shared.skip_index.at(name))].to_layer = i;
    }
    flows = flows || learns(outline[i]);
    shared.gradient_flows.push_back(flows ? 1 : 0);
  }
  for (std::size_t stage = 0; stage < shared.layout.placement.size(); ++stage) {
    const auto& first = shared.layout.first_layer;
    shared.recompute.push_back(
        keep_checkpoints(static_cast<int>(first[stage + 1] - first[stage]), {1}, false));
  }
  share_tied(model, outline, &shared);
  return shared;
}

}  // namespace pipewright
