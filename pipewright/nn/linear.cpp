#include "pipewright/nn/linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/torch.h>

#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/nn/own_node.h"
#include "pipewright/nn/weight_copies.h"
#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

using torch::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Edges of the node, in the order of its inputs.
enum Input : std::size_t { kX, kWeight, kBias, kNumInputs };

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// What autocast would have the product run in, or else the weight's own.
torch::ScalarType product_type(const Tensor& weight) {
  const c10::DeviceType device = weight.device().type();
  return compat::autocast_enabled(device) ? compat::autocast_dtype(device) : weight.scalar_type();
}

/// A weight or a bias as the product takes it.
Tensor as_taken(const Tensor& weight, torch::ScalarType type) {
  if (!weight.defined()) return weight;
  WeightCopies* copies = OwnGraphs::copies();
  return copies != nullptr ? copies->of(weight, type) : weight.to(type);
}

class LinearBackward : public torch::autograd::TraceableFunction {
 public:
  /// `input`, `copy`: x and the weight as the product had them. A copy of the weight that nobody
  /// else holds is made again instead: it would be held for every micro-batch under way.
  LinearBackward(const Tensor& x, const Tensor& input, const Tensor& weight, const Tensor& copy)
      : sizes_(x.sizes().vec()), type_(input.scalar_type()), weight_(weight, false) {
    if (input.is_same(x)) {
      x_ = SavedVariable(x, false);
    } else {
      cast_ = input;
    }
    if (OwnGraphs::copies() != nullptr && !copy.is_same(weight)) copy_ = copy;
  }

  std::string name() const override { return "LinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    at::AutoDispatchBelowADInplaceOrView guard;
    variable_list result(kNumInputs);
    if (!gradients[0].defined()) return result;
    const Tensor gradient = rows_of(gradients[0]);
    const auto self = shared_from_this();
    const Tensor weight = weight_.unpack(self);  // complains of one that has changed
    if (wanted(kX))
      result[kX] = gradient.mm(copy_.defined() ? copy_ : weight.to(type_)).view(sizes_);
    if (wanted(kWeight)) {
      const Tensor input = rows_of(cast_.defined() ? cast_ : x_.unpack(self));
      if (!add_product_to_leaf(next_edge(kWeight), gradient, input))
        result[kWeight] = weight_gradient(gradient, input, weight.scalar_type());
    }
    if (wanted(kBias)) result[kBias] = gradient.sum({0}, false, weight.scalar_type());
    return result;
  }

  void release_variables() override {
    x_.reset_data();
    cast_ = copy_ = Tensor();
    weight_.reset_data();
  }

 private:
  bool wanted(std::size_t edge) const { return task_should_compute_output(edge); }

  std::vector<std::int64_t> sizes_;
  torch::ScalarType type_;
  SavedVariable x_, weight_;
  Tensor cast_;  // x in 16 bits
  Tensor copy_;  // the weight in 16 bits
};

/// Whether autocast, or nobody, would see to it that both are of one type.
bool types_agree(const Tensor& x, const Tensor& weight) {
  if (!x.is_floating_point()) return false;
  if (!compat::autocast_enabled(x.device().type())) return x.scalar_type() == weight.scalar_type();
  return x.scalar_type() != torch::kDouble && weight.scalar_type() != torch::kDouble;
}

/// Whether it is a Trainer's, and a product that this file knows.
bool is_own_product(const Tensor& x, const Tensor& weight) {
  return OwnGraphs::any() && x.device() == weight.device() && (x.is_cpu() || x.is_cuda()) &&
         types_agree(x, weight) && weight.dim() == 2 && x.dim() >= 2 && x.numel() > 0 &&
         x.size(-1) == weight.size(1) && !torch::jit::tracer::isTracing();
}

}  // namespace

Tensor accumulating_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!is_own_product(x, weight)) return torch::linear(x, weight, bias);
  const bool learns = torch::GradMode::is_enabled();
  if (learns && !weight.requires_grad()) return torch::linear(x, weight, bias);
  const torch::ScalarType type = product_type(weight);
  Tensor input, copy;
  Tensor out = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    input = x.to(type);
    copy = as_taken(weight, type);
    return torch::linear(input, copy, as_taken(bias, type));
  }();
  if (!learns) return out;
  const std::shared_ptr<LinearBackward> node(new LinearBackward(x, input, weight, copy),
                                             torch::autograd::deleteNode);
  set_node(&out, node, {x, weight, bias});
  return out;
}

}  // namespace pipewright
