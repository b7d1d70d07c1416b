#include "pipewright/train/updater.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_set>

#include "pipewright/base/error.h"

namespace pipewright {

Updater::Updater(SharedModel& shared, const OptimizerFactory& factory)
    : shared_(&shared),
      parameters_(shared.layout.placement.size()),
      optimizers_(parameters_.size()),
      squared_norms_(parameters_.size()) {
  std::unordered_set<const void*> seen;
  const auto& layers = shared.model->layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].module) continue;
    auto& owned = parameters_[static_cast<std::size_t>(shared.layout.stage_of(i))].named;
    for (const auto& item : layers[i].module->named_parameters()) {
      if (!item.value().requires_grad() || !seen.insert(item.value().unsafeGetTensorImpl()).second)
        continue;
      owned.emplace_back(fmt::format("{}.{}", layers[i].name, item.key()), item.value());
    }
  }
  for (std::size_t stage = 0; stage < parameters_.size(); ++stage) {
    if (parameters_[stage].named.empty() || !factory) continue;
    auto& made = optimizers_[stage].optimizer;
    made = factory(parameters_[stage]);
    if (made == nullptr) throw InvalidArgument("trainer", "the optimizer factory returned nothing");
    if (dynamic_cast<torch::optim::LBFGS*>(made.get()) != nullptr) {
      throw InvalidArgument(
          "trainer",
          "LBFGS calls the model itself and cannot run over a pipeline; use another optimizer");
    }
    for (const auto& group : made->param_groups())
      optimizers_[stage].rates.push_back(group.options().get_lr());
  }
}

void Updater::finish_gradients(int stage, double factor) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters(stage).named) {
    torch::Tensor sum;
    for (auto& use : shared_->tied_uses) {
      if (!use->parameter.is_same(parameter) || !use->gradient.defined()) continue;
      // It may be another stream's: its memory must outlive this one's use of it.
      if (use->gradient.is_cuda())
        use->gradient.record_stream(current_stream(use->gradient.device()));
      sum = sum.defined() ? sum.add_(use->gradient) : use->gradient;
      use->gradient = torch::Tensor();
    }
    if (sum.defined()) parameter.mutable_grad() = sum;
  }
  scale(stage, factor);
}

void Updater::scale(int stage, double factor) {
  if (factor == 1) return;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters(stage).named) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }
}

void Updater::measure(int stage) {
  const torch::NoGradGuard no_grad;
  Tensors norms;
  for (const auto& [name, parameter] : parameters(stage).named) {
    if (parameter.grad().defined()) norms.push_back(parameter.grad().norm().to(torch::kFloat64));
  }
  auto& squares = squared_norms_[static_cast<std::size_t>(stage)];
  squares.clear();
  if (norms.empty()) return;
  const auto values = torch::stack(norms).cpu();  // one wait for a GPU, not one a parameter
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const double norm = values[i].item<double>();
    squares.push_back(norm * norm);
  }
}

double Updater::total_norm() const {
  double sum = 0;
  for (const auto& squares : squared_norms_) {
    for (const double square : squares) sum += square;
  }
  return std::sqrt(sum);
}

void Updater::check_finite(int stage) const {
  for (const auto& [name, parameter] : parameters(stage).named) {
    if (!parameter.grad().defined() || torch::isfinite(parameter.grad()).all().item<bool>())
      continue;
    throw Error("check_finite",
                fmt::format("the gradient of parameter '{}' is nan or infinite", name));
  }
}

void Updater::step(int stage, std::optional<double> rate) {
  const Rated& rated = optimizers_[static_cast<std::size_t>(stage)];
  if (!rated.optimizer) return;
  auto& groups = rated.optimizer->param_groups();
  for (std::size_t i = 0; rate && i < rated.rates.size(); ++i)
    groups[i].options().set_lr(rated.rates[i] * *rate);
  rated.optimizer->step();
  clear(stage);
}

void Updater::clear(int stage) {
  for (const auto& [name, parameter] : parameters(stage).named)
    parameter.mutable_grad() = torch::Tensor();
}

void Updater::clear_all() {
  for (auto& use : shared_->tied_uses) use->gradient = torch::Tensor();
  for (std::size_t stage = 0; stage < parameters_.size(); ++stage) clear(static_cast<int>(stage));
}

std::vector<torch::optim::Optimizer*> Updater::optimizers() {
  std::vector<torch::optim::Optimizer*> result;
  for (auto& rated : optimizers_) result.push_back(rated.optimizer.get());
  return result;
}

}  // namespace pipewright
