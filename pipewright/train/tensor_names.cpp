#include "pipewright/train/tensor_names.h"

#include <set>
#include <unordered_map>

namespace pipewright {
namespace {

/// Under the names of their own uses.
std::vector<NamedTensor> tensors_of(const Layer& layer) {
  std::vector<NamedTensor> result;
  if (!layer.module) return result;
  const auto add = [&](const auto& items, bool is_parameter) {
    for (const auto& item : items) {
      const std::string name = layer.name + "." + item.key();
      result.push_back({name, name, item.value(), is_parameter});
    }
  };
  add(layer.module->named_parameters(), true);
  add(layer.module->named_buffers(), false);
  return result;
}

}  // namespace

TensorNames::TensorNames(const Sequence& model, const Outline& outline) {
  std::unordered_map<int, std::string> first;
  for (std::size_t i = 0; i < outline.size(); ++i) {
    for (const TensorOutline& use : outline[i]) {
      const std::string name = model.layers()[i].name + "." + use.name;
      const auto [found, is_new] = first.emplace(use.number, name);
      if (!is_new) aliases_[name] = found->second;
    }
  }
}

std::vector<NamedTensor> TensorNames::of(const Sequence& model, std::size_t layer) const {
  auto result = tensors_of(model.layers()[layer]);
  for (NamedTensor& use : result) {
    const auto found = aliases_.find(use.own_name);
    if (found != aliases_.end()) use.name = found->second;
  }
  return result;
}

std::vector<std::pair<std::string, torch::Tensor>> TensorNames::all(const Sequence& model) const {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  std::set<std::string> seen;
  for (const bool parameters : {true, false}) {
    for (std::size_t i = 0; i < model.size(); ++i) {
      for (NamedTensor& use : of(model, i)) {
        if (use.is_parameter != parameters || !seen.insert(use.name).second) continue;
        result.emplace_back(std::move(use.name), std::move(use.tensor));
      }
    }
  }
  return result;
}

}  // namespace pipewright
