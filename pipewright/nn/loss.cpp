#include "pipewright/nn/loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

void check_present(const char* name, const Tensors& outputs, const Tensors& targets) {
  if (outputs.empty() || targets.empty()) {
    throw InvalidArgument("loss", fmt::format("{} needs an output and a target, got {} and {}",
                                              name, outputs.size(), targets.size()));
  }
}

std::string shape_text(const torch::Tensor& tensor) {
  return fmt::format("({})", fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

}  // namespace

Loss mean_squared_error() {
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    check_present("mean_squared_error", outputs, targets);
    if (outputs[0].sizes() != targets[0].sizes()) {
      throw InvalidArgument("loss", fmt::format("outputs {} and targets {} differ in shape",
                                                shape_text(outputs[0]), shape_text(targets[0])));
    }
    const auto rows = static_cast<double>(targets[0].size(0));
    const double columns = static_cast<double>(targets[0].numel()) / rows;
    return {(outputs[0] - targets[0]).pow(2).sum() / columns, rows};
  };
  loss.weight = [](const Tensors& targets) { return static_cast<double>(targets[0].size(0)); };
  return loss;
}

Loss cross_entropy(std::int64_t ignore) {
  Loss loss;
  loss.value = [ignore](const Tensors& outputs, const Tensors& targets) -> LossValue {
    check_present("cross_entropy", outputs, targets);
    const auto logits = outputs[0].reshape({-1, outputs[0].size(-1)});  // (rows * ..., classes)
    const auto classes = targets[0].reshape({-1});
    if (logits.size(0) != classes.size(0)) {
      throw InvalidArgument("loss", fmt::format("logits {} do not fit targets {}",
                                                shape_text(outputs[0]), shape_text(targets[0])));
    }
    namespace F = torch::nn::functional;
    const auto sum = F::cross_entropy(
        logits, classes, F::CrossEntropyFuncOptions().ignore_index(ignore).reduction(torch::kSum));
    return {sum, 0};
  };
  loss.weight = [ignore](const Tensors& targets) {
    return targets.empty() ? 0.0 : (targets[0] != ignore).sum().item<double>();
  };
  return loss;
}

Loss binary_cross_entropy() {
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    check_present("binary_cross_entropy", outputs, targets);
    if (outputs[0].sizes() != targets[0].sizes()) {
      throw InvalidArgument("loss", fmt::format("logits {} and targets {} differ in shape",
                                                shape_text(outputs[0]), shape_text(targets[0])));
    }
    namespace F = torch::nn::functional;
    const auto sum = F::binary_cross_entropy_with_logits(
        outputs[0], targets[0].to(outputs[0].scalar_type()),
        F::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kSum));
    return {sum, static_cast<double>(targets[0].size(0))};
  };
  loss.weight = [](const Tensors& targets) { return static_cast<double>(targets[0].size(0)); };
  return loss;
}

}  // namespace pipewright
