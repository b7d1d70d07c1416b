#include "pipewright/optim/adam.h"

#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

using State = torch::optim::AdamParamState;

/// A group's parameters that have gradients, with their states.
struct Lists {
  std::vector<torch::Tensor> parameters, gradients, averages, squares, most_squares, steps;
};

State& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, bool amsgrad) {
  auto& slot = optimizer.state()[compat::optimizer_key(parameter)];
  if (slot == nullptr) {
    auto state = std::make_unique<State>();
    state->step(0);
    state->exp_avg(torch::zeros_like(parameter));
    state->exp_avg_sq(torch::zeros_like(parameter));
    if (amsgrad) state->max_exp_avg_sq(torch::zeros_like(parameter));
    slot = std::move(state);
  }
  return static_cast<State&>(*slot);
}

bool can_fuse(const torch::optim::OptimizerParamGroup& group) {
  for (const auto& parameter : group.params()) {
    const auto& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (!parameter.is_cuda() || parameter.device() != group.params()[0].device()) return false;
    if (gradient.scalar_type() != parameter.scalar_type()) return false;
    if (gradient.is_sparse() || gradient.strides() != parameter.strides()) return false;
  }
  return compat::kHasFusedAdam;
}

Lists lists_of(torch::optim::Optimizer& optimizer, torch::optim::OptimizerParamGroup& group,
               bool amsgrad) {
  Lists lists;
  std::map<std::int64_t, torch::Tensor> counts;  // one tensor a number of steps
  for (auto& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    State& state = state_of(optimizer, parameter, amsgrad);
    state.step(state.step() + 1);
    auto& count = counts[state.step()];
    if (!count.defined()) {
      count = torch::full({}, static_cast<double>(state.step()),
                          torch::dtype(torch::kFloat32).device(parameter.device()));
    }
    lists.parameters.push_back(parameter);
    lists.gradients.push_back(parameter.grad());
    lists.averages.push_back(state.exp_avg());
    lists.squares.push_back(state.exp_avg_sq());
    if (amsgrad) lists.most_squares.push_back(state.max_exp_avg_sq());
    lists.steps.push_back(count);
  }
  return lists;
}

}  // namespace

torch::Tensor FusedAdam::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  for (const auto& group : param_groups()) {
    if (!can_fuse(group)) return torch::optim::Adam::step(std::move(closure));
  }
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode grad(true);
    loss = closure();
  }
  for (auto& group : param_groups()) {
    const auto& options = static_cast<const torch::optim::AdamOptions&>(group.options());
    Lists lists = lists_of(*this, group, options.amsgrad());
    if (lists.parameters.empty()) continue;
    compat::fused_adam(lists.parameters, lists.gradients, lists.averages, lists.squares,
                       lists.most_squares, lists.steps,
                       {options.lr(), std::get<0>(options.betas()), std::get<1>(options.betas()),
                        options.weight_decay(), options.eps(), options.amsgrad()});
  }
  return loss;
}

OptimizerFactory adam(const torch::optim::AdamOptions& options) {
  return [options](const Parameters& parameters) {
    return std::make_unique<FusedAdam>(static_cast<std::vector<torch::Tensor>>(parameters),
                                       options);
  };
}

}  // namespace pipewright
