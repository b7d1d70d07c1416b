#include "gradient_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

using namespace pipewright;

namespace {

using Gradients = std::map<std::string, torch::Tensor>;

/// The gradients of all parameters that have one, and have none afterwards.
Gradients take_gradients(const Sequence& model) {
  Gradients gradients;
  for (auto& [name, parameter] : model.named_parameters()) {
    if (!parameter.grad().defined()) continue;
    gradients[name] = parameter.grad().clone();
    parameter.mutable_grad().reset();
  }
  return gradients;
}

Gradients pipeline_gradients(const Sequence& model, const Batch& batch, const Strategy& strategy) {
  const auto unused = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, 0.1);
  };
  Trainer trainer(model, cross_entropy(), unused, strategy);
  trainer.gradients(batch);
  return take_gradients(model);
}

Gradients plain_gradients(const Sequence& model, const Batch& batch) {
  Tensors x = batch.inputs;
  for (const Layer& layer : model.layers()) x = layer.forward(x);
  torch::nn::functional::cross_entropy(x[0].flatten(0, 1), batch.targets[0].flatten()).backward();
  return take_gradients(model);
}

}  // namespace

double gradient_difference(const Sequence& model, const Batch& batch, const Strategy& strategy) {
  for (const Layer& layer : model.layers()) layer.module->to(torch::kFloat64);
  const Gradients ours = pipeline_gradients(model, batch, strategy);
  const Gradients plain = plain_gradients(model, batch);
  double most = 0;
  for (const auto& [name, gradient] : ours) {
    const torch::Tensor& expected = plain.at(name);
    const double size = expected.abs().max().item<double>();
    const double difference = (gradient - expected).abs().max().item<double>();
    const double relative = difference / std::max(size, std::numeric_limits<double>::min());
    if (std::isnan(relative)) return relative;  // which std::max would lose
    most = std::max(most, relative);
  }
  return most;
}
