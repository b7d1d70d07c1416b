#include "pipewright/nn/leaf_gradient.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

thread_local bool graphs_are_own = false;
thread_local WeightCopies* copies_in_use = nullptr;

bool takes_product(const torch::Tensor& gradient, const torch::Tensor& a, const torch::Tensor& b) {
  return gradient.defined() && gradient.layout() == torch::kStrided && gradient.is_contiguous() &&
         !gradient.requires_grad() && gradient.device() == a.device() && gradient.dim() == 2 &&
         gradient.size(0) == a.size(1) && gradient.size(1) == b.size(1);
}

/// Whether a GPU's products of such tensors, in 16 bits, can be added up in `sum`.
bool is_wider(torch::ScalarType sum, const torch::Tensor& a) {
  return sum == torch::kFloat && a.is_cuda() &&
         (a.scalar_type() == torch::kBFloat16 || a.scalar_type() == torch::kHalf);
}

/// gradient += a^T b; false where LibTorch has no such product.
bool add_product(torch::Tensor* gradient, const torch::Tensor& a, const torch::Tensor& b) {
  if (gradient->scalar_type() == a.scalar_type()) {
    gradient->addmm_(a.t(), b);
    return true;
  }
  return is_wider(gradient->scalar_type(), a) && compat::add_product_in_32_bits(gradient, a.t(), b);
}

}  // namespace

OwnGraphs::OwnGraphs(WeightCopies* copies)
    : before_(std::exchange(graphs_are_own, true)),
      copies_before_(std::exchange(copies_in_use, copies)) {}
OwnGraphs::~OwnGraphs() {
  graphs_are_own = before_;
  copies_in_use = copies_before_;
}
bool OwnGraphs::any() { return graphs_are_own; }
WeightCopies* OwnGraphs::copies() { return copies_in_use; }

bool has_hooks(torch::autograd::Node& node) {
  return compat::has_tensor_hooks(node) || !node.pre_hooks().empty() || !node.post_hooks().empty();
}

bool add_product_to_leaf(const torch::autograd::Edge& edge, const torch::Tensor& a,
                         const torch::Tensor& b) {
  auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
  if (leaf == nullptr || has_hooks(*leaf)) return false;
  if (!torch::autograd::impl::hooks(leaf->variable).empty()) return false;
  torch::Tensor& gradient = leaf->variable.mutable_grad();
  if (!takes_product(gradient, a, b) || !add_product(&gradient, a, b)) return false;
  torch::autograd::impl::bump_version(gradient);  // below autograd nobody else does
  return true;
}

torch::Tensor weight_gradient(const torch::Tensor& a, const torch::Tensor& b,
                              torch::ScalarType type) {
  torch::Tensor product;
  if (is_wider(type, a)) product = compat::product_in_32_bits(a.t(), b);
  return product.defined() ? product : a.t().mm(b);
}

}  // namespace pipewright
