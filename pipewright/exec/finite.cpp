#include "pipewright/exec/finite.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// Throws where `tensor`, which `whose` made, is not finite throughout.
void check(const torch::Tensor& tensor, const std::string& whose) {
  if (!tensor.defined() || !tensor.is_floating_point()) return;
  const torch::NoGradGuard no_grad;
  const auto finite = torch::isfinite(tensor);
  if (finite.all().item<bool>()) return;
  throw Error("check_finite",
              fmt::format("{} made {} of {} values nan or infinite", whose,
                          tensor.numel() - finite.sum().item<std::int64_t>(), tensor.numel()));
}

}  // namespace

void check_finite(const Sequence& model, std::size_t index, const Tensors& outputs) {
  const auto& layers = model.layers();
  for (const auto& output : outputs)
    check(output, fmt::format("the forward of layer '{}'", layers[index].name));
}

void watch_gradients(const Sequence& model, std::size_t index, const Tensors& outputs) {
  const auto& layers = model.layers();
  std::string whose = "the backward of the loss";
  if (index + 1 < layers.size())
    whose = fmt::format("the backward of layer '{}'", layers[index + 1].name);
  if (!layers[index].options.stash.empty())
    whose += fmt::format(", or of one that pops what '{}' stashes,", layers[index].name);
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    output.register_hook([whose](torch::Tensor gradient) { check(gradient, whose); });
  }
}

}  // namespace pipewright
