#include "gradient_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace pipewright;

namespace {

/// The gradients of all parameters, which have none afterwards.
Tensors take_gradients(const Sequence& model) {
  Tensors gradients;
  for (auto& [name, parameter] : model.named_parameters()) {
    gradients.push_back(parameter.grad().clone());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

Tensors pipeline_gradients(const Sequence& model, const Batch& batch, const Strategy& strategy) {
  const auto unused = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, 0.1);
  };
  Trainer trainer(model, cross_entropy(), unused, strategy);
  trainer.gradients(batch);
  return take_gradients(model);
}

Tensors plain_gradients(const Sequence& model, const Batch& batch) {
  Tensors x = batch.inputs;
  for (const Layer& layer : model.layers()) x = layer.forward(x);
  torch::nn::functional::cross_entropy(x[0].flatten(0, 1), batch.targets[0].flatten()).backward();
  return take_gradients(model);
}

}  // namespace

double gradient_difference(const Sequence& model, const Batch& batch, const Strategy& strategy) {
  for (const Layer& layer : model.layers()) layer.module->to(torch::kFloat64);
  const Tensors ours = pipeline_gradients(model, batch, strategy);
  const Tensors plain = plain_gradients(model, batch);
  double most = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double size = plain[i].abs().max().item<double>();
    const double difference = (ours[i] - plain[i]).abs().max().item<double>();
    const double relative = difference / std::max(size, std::numeric_limits<double>::min());
    if (std::isnan(relative)) return relative;  // which std::max would lose
    most = std::max(most, relative);
  }
  return most;
}
