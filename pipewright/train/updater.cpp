#include "pipewright/train/updater.h"

#include <cmath>
#include <unordered_set>

#include "pipewright/base/error.h"

namespace pipewright {

Updater::Updater(SharedModel& shared, const OptimizerFactory& factory)
    : shared_(&shared),
      parameters_(shared.layout.placement.size()),
      squared_norms_(shared.layout.placement.size()) {
  std::unordered_set<const void*> seen;
  const auto& layers = shared.model->layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].module) continue;
    for (const auto& parameter : layers[i].module->parameters()) {
      if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second)
        continue;
      parameters(shared.layout.stage_of(i)).push_back(parameter);
    }
  }
  for (const auto& owned : parameters_) {
    optimizers_.push_back(owned.empty() || !factory ? nullptr : factory(owned));
    if (dynamic_cast<torch::optim::LBFGS*>(optimizers_.back().get()) == nullptr) continue;
    throw InvalidArgument(
        "trainer",
        "LBFGS calls the model itself and cannot run over a pipeline; use another optimizer");
  }
}

void Updater::finish_gradients(const std::vector<int>& stages, double factor) {
  const torch::NoGradGuard no_grad;
  for (const int stage : stages) {
    for (auto& parameter : parameters(stage)) {
      torch::Tensor sum;
      for (auto& use : shared_->tied_uses) {
        if (!use->parameter.is_same(parameter) || !use->gradient.defined()) continue;
        sum = sum.defined() ? sum.add_(use->gradient) : use->gradient;
        use->gradient = torch::Tensor();
      }
      if (sum.defined()) parameter.mutable_grad() = sum;
    }
    scale(stage, factor);
  }
}

void Updater::scale(int stage, double factor) {
  if (factor == 1) return;
  const torch::NoGradGuard no_grad;
  for (auto& parameter : parameters(stage)) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }
}

double Updater::clip(const std::vector<int>& stages, double most, Meeting* meeting) {
  for (const int stage : stages) {
    auto& squares = squared_norms_[static_cast<std::size_t>(stage)];
    squares.clear();
    for (const auto& parameter : parameters(stage)) {
      if (!parameter.grad().defined()) continue;
      const double norm = parameter.grad().norm().item<double>();
      squares.push_back(norm * norm);
    }
  }
  meeting->wait();
  double sum = 0;
  for (const auto& squares : squared_norms_) {
    for (const double square : squares) sum += square;
  }
  meeting->wait();  // everybody has read the norms before a next step writes them
  const double norm = std::sqrt(sum);
  const double factor = most / (norm + 1e-6);
  if (factor < 1) {
    for (const int stage : stages) scale(stage, factor);
  }
  return norm;
}

void Updater::step(int stage) {
  auto& optimizer = optimizers_[static_cast<std::size_t>(stage)];
  if (!optimizer) return;
  optimizer->step();
  for (auto& parameter : parameters(stage)) parameter.mutable_grad() = torch::Tensor();
}

void Updater::clear_gradients() {
  for (auto& use : shared_->tied_uses) use->gradient = torch::Tensor();
  for (auto& owned : parameters_) {
    for (auto& parameter : owned) parameter.mutable_grad() = torch::Tensor();
  }
}

std::vector<torch::optim::Optimizer*> Updater::optimizers() {
  std::vector<torch::optim::Optimizer*> result;
  for (auto& optimizer : optimizers_) result.push_back(optimizer.get());
  return result;
}

}  // namespace pipewright
