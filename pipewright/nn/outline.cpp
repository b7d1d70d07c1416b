#include "pipewright/nn/outline.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>

#include "pipewright/base/error.h"
#include "pipewright/nn/random.h"

namespace pipewright {
namespace {

class Outliner {
 public:
  explicit Outliner(const Sequence& model) : model_(model) {
    for (const Layer& layer : model.layers())
      for (const std::string& name : layer.options.tied) tied_.emplace(name, torch::Tensor());
    for (const Layer& layer : model.layers()) {
      if (layer.module) keep(*layer.module);
    }
  }

  std::vector<TensorOutline> outline(std::size_t index) {
    const Layer& layer = model_.layers()[index];
    if (layer.module) return outline(layer.name, *layer.module);
    if (!layer.make) return {};
    Tensors tied;
    for (const std::string& name : layer.options.tied) tied.push_back(tied_tensor(name, layer));
    const BuiltLayer built = model_.made(index, tied);
    auto result = outline(layer.name, *built.module);
    // What is let go must not be mistaken for what comes after it, at its address.
    std::erase_if(numbers_, [&](const auto& entry) { return !kept_.contains(entry.first); });
    return result;
  }

 private:
  const torch::Tensor& tied_tensor(const std::string& name, const Layer& user) const {
    const torch::Tensor& tensor = tied_.at(name);
    if (!tensor.defined()) {
      throw InvalidArgument(
          "model", fmt::format("layer '{}' is tied to '{}', but no layer before it has such a "
                               "parameter",
                               user.name, name));
    }
    return tensor;
  }
  void keep(const torch::Tensor& tensor) { kept_.emplace(tensor.unsafeGetTensorImpl(), tensor); }
  void keep(const torch::nn::Module& module) {
    for (const auto& tensor : module.parameters()) keep(tensor);
    for (const auto& tensor : module.buffers()) keep(tensor);
  }

  std::vector<TensorOutline> outline(const std::string& layer, const torch::nn::Module& module) {
    std::vector<TensorOutline> result;
    const auto add = [&](const auto& items, bool is_parameter) {
      for (const auto& item : items) {
        const torch::Tensor& tensor = item.value();
        const auto tied = tied_.find(layer + "." + item.key());
        if (is_parameter && tied != tied_.end() && !tied->second.defined()) {
          tied->second = tensor;
          keep(tensor);
        }
        const auto [entry, is_new] = numbers_.try_emplace(tensor.unsafeGetTensorImpl(), next_);
        if (is_new) ++next_;
        result.push_back({item.key(), is_parameter, tensor.requires_grad(), tensor.sizes().vec(),
                          tensor.scalar_type(), tensor.device(), entry->second});
      }
    };
    add(module.named_parameters(), true);
    add(module.named_buffers(), false);
    return result;
  }

  const Sequence& model_;
  std::map<std::string, torch::Tensor> tied_;            // those that makers ask for
  std::unordered_map<const void*, torch::Tensor> kept_;  // while this lives
  std::unordered_map<const void*, int> numbers_;
  int next_ = 0;
};

}  // namespace

std::int64_t TensorOutline::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Outline outline_of(const Sequence& model) {
  const NoDraws no_draws;
  Outliner outliner(model);
  Outline outline;
  for (std::size_t i = 0; i < model.size(); ++i) outline.push_back(outliner.outline(i));
  return outline;
}

std::int64_t num_parameters(const Outline& outline) {
  std::int64_t count = 0;
  int last = -1;  // numbers rise with first uses
  for (const auto& layer : outline) {
    for (const TensorOutline& tensor : layer) {
      if (tensor.number <= last) continue;
      last = tensor.number;
      if (tensor.is_parameter) count += tensor.numel();
    }
  }
  return count;
}

}  // namespace pipewright
