#include "pipewright/nn/linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/torch.h>

#include <optional>

#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/nn/own_node.h"

namespace pipewright {
namespace {

using torch::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Edges of the node, in the order of its inputs.
enum Input : std::size_t { kX, kWeight, kBias, kNumInputs };

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

class LinearBackward : public torch::autograd::TraceableFunction {
 public:
  LinearBackward(const Tensor& x, const Tensor& weight)
      : sizes_(x.sizes().vec()), x_(x, false), weight_(weight, false) {}

  std::string name() const override { return "LinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    variable_list result(kNumInputs);
    if (!gradients[0].defined()) return result;
    std::optional<at::AutoDispatchBelowADInplaceOrView> guard;
    const bool differentiable = torch::GradMode::is_enabled();
    if (!differentiable) guard.emplace();
    const Tensor gradient = rows_of(gradients[0]);
    const auto self = shared_from_this();
    if (wanted(kX)) result[kX] = gradient.mm(weight_.unpack(self)).view(sizes_);
    if (wanted(kWeight)) {
      const Tensor x = rows_of(x_.unpack(self));
      if (differentiable || !add_product_to_leaf(next_edge(kWeight), gradient, x))
        result[kWeight] = gradient.t().mm(x);
    }
    if (wanted(kBias)) result[kBias] = gradient.sum(0);
    return result;
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
  }

 private:
  bool wanted(std::size_t edge) const { return task_should_compute_output(edge); }

  std::vector<std::int64_t> sizes_;
  SavedVariable x_, weight_;
};

bool may_accumulate(const Tensor& x, const Tensor& weight) {
  return weight.requires_grad() && torch::GradMode::is_enabled() && runs_plainly_on_cpu(x) &&
         weight.device().is_cpu() && weight.scalar_type() == x.scalar_type() && weight.dim() == 2 &&
         x.dim() >= 2 && x.numel() > 0 && x.size(-1) == weight.size(1);
}

}  // namespace

Tensor accumulating_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!may_accumulate(x, weight)) return torch::linear(x, weight, bias);
  Tensor out = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return torch::linear(x, weight, bias);
  }();
  const std::shared_ptr<LinearBackward> node(new LinearBackward(x, weight),
                                             torch::autograd::deleteNode);
  set_node(&out, node, {x, weight, bias});
  return out;
}

}  // namespace pipewright
