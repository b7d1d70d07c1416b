#include "pipewright/exec/shared_model.h"

#include <algorithm>
#include <unordered_map>

namespace pipewright {

int StageLayout::stage_of(std::size_t layer) const {
  const auto after = std::upper_bound(first_layer.begin(), first_layer.end(), layer);
  return static_cast<int>(after - first_layer.begin()) - 1;
}

SharedModel share_model(const Sequence& model, Loss loss, StageLayout layout) {
  SharedModel shared;
  shared.model = &model;
  shared.layout = std::move(layout);
  shared.loss = std::move(loss);
  std::unordered_map<const void*, int> uses;
  bool learns = false;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Layer& layer = model.layers()[i];
    for (const auto& name : layer.options.stash) {
      shared.skip_index[name] = static_cast<int>(shared.skips.size());
      shared.skips.push_back({i, i});
    }
    for (const auto& name : layer.options.pop) {
      shared.skips[static_cast<std::size_t>(shared.skip_index.at(name))].to_layer = i;
    }
    if (layer.module) {
      for (const auto& parameter : layer.module->parameters()) {
        ++uses[parameter.unsafeGetTensorImpl()];
        learns = learns || parameter.requires_grad();
      }
    }
    shared.gradient_flows.push_back(learns ? 1 : 0);
  }
  for (std::size_t stage = 0; stage < shared.layout.placement.size(); ++stage) {
    const auto& first = shared.layout.first_layer;
    shared.recompute.push_back(
        keep_checkpoints(static_cast<int>(first[stage + 1] - first[stage]), {1}, false));
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (!model.layers()[i].module) continue;
    for (const auto& parameter : model.layers()[i].module->parameters()) {
      if (uses[parameter.unsafeGetTensorImpl()] < 2 || !parameter.requires_grad()) continue;
      shared.tied_uses.push_back(std::make_unique<TiedUse>(TiedUse{i, parameter, {}}));
    }
  }
  return shared;
}

}  // namespace pipewright
