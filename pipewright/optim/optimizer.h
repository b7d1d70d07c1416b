#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pipewright {

/// The parameters that one stage owns, as `layer.name`, in layer order. Converts to a vector of
/// tensors, which is what the constructors of torch::optim take.
struct Parameters {
  std::vector<std::pair<std::string, torch::Tensor>> named;

  operator std::vector<torch::Tensor>() const {  // NOLINT: torch::optim::Adam(parameters, 1e-3)
    return where([](const std::string&, const torch::Tensor&) { return true; });
  }

  /// Some of them, for a group of its own:
  ///
  ///     const auto is_matrix = [](const std::string&, const torch::Tensor& p) { return p.dim() >
  ///     1; }; OptimizerParamGroup decayed(parameters.where(is_matrix));
  template <typename Wanted>
  std::vector<torch::Tensor> where(const Wanted& wanted) const {
    std::vector<torch::Tensor> result;
    for (const auto& [name, parameter] : named) {
      if (wanted(name, parameter)) result.push_back(parameter);
    }
    return result;
  }
};

/// Makes the optimizer of a stage over the parameters it owns. LBFGS is refused: it wants to call
/// the model.
using OptimizerFactory =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters& parameters)>;

}  // namespace pipewright
