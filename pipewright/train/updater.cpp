#include "pipewright/train/updater.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/partition/partition.h"

namespace pipewright {
namespace {

/// A layer owns a parameter that no layer before it uses.
bool owns(const SharedModel& shared, std::size_t layer, const torch::Tensor& parameter) {
  return std::none_of(shared.tied_uses.begin(), shared.tied_uses.end(), [&](const auto& use) {
    return use->layer < layer && use->parameter.is_same(parameter);
  });
}

}  // namespace

Updater::Updater(SharedModel& shared, const OptimizerFactory& factory, int replica, int shards)
    : shared_(&shared),
      shards_(shards),
      parameters_(shared.layout.placement.size()),
      optimizers_(parameters_.size()),
      squared_norms_(parameters_.size()) {
  const auto& layers = shared.model->layers();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].module) continue;
    auto& owned = parameters_[static_cast<std::size_t>(shared.layout.stage_of(i))].named;
    for (const auto& item : layers[i].module->named_parameters()) {
      if (!item.value().requires_grad() || !owns(shared, i, item.value())) continue;
      owned.emplace_back(fmt::format("{}.{}", layers[i].name, item.key()), item.value());
    }
  }
  for (std::size_t stage = 0; stage < parameters_.size(); ++stage) {
    const Parameters own = shard_parameters(stage, replica);
    if (own.named.empty() || !factory) continue;
    auto& made = optimizers_[stage].optimizer;
    made = factory(own);
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

/// Consecutive parameters, as equal in size as they can be.
Parameters Updater::shard_parameters(std::size_t stage, int replica) const {
  const Parameters& all = parameters_[stage];
  if (shards_ == 1) return all;
  std::vector<double> sizes;
  for (const auto& [name, parameter] : all.named)
    sizes.push_back(static_cast<double>(parameter.numel()));
  const int parts = std::min(shards_, static_cast<int>(sizes.size()));
  Parameters own;
  if (replica >= parts) return own;  // fewer parameters than replicas
  std::size_t first = 0;
  const std::vector<int> counts = partition_by_bottleneck(sizes, parts).sizes;
  for (int i = 0; i < replica; ++i)
    first += static_cast<std::size_t>(counts[static_cast<std::size_t>(i)]);
  const auto begin = all.named.begin() + static_cast<std::ptrdiff_t>(first);
  own.named.assign(begin, begin + counts[static_cast<std::size_t>(replica)]);
  return own;
}

Tensors Updater::shard(int stage, int replica) const {
  return shard_parameters(static_cast<std::size_t>(stage), replica);
}

Parameters Updater::chosen(int stage, bool tied) const {
  Parameters result;
  for (const auto& item : parameters(stage).named) {
    const bool is_tied =
        std::any_of(shared_->tied_uses.begin(), shared_->tied_uses.end(),
                    [&](const auto& use) { return use->parameter.is_same(item.second); });
    if (is_tied == tied) result.named.push_back(item);
  }
  return result;
}

void Updater::sum_tied(int stage) {
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
  if (!rated.optimizer) return clear(stage);
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
