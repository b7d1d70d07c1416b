#include "pipewright/nn/leaf_gradient.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "pipewright/torch/compat.h"

namespace pipewright {
namespace {

thread_local bool leaves_are_own = false;

bool takes_product(const torch::Tensor& gradient, const torch::Tensor& a, const torch::Tensor& b) {
  return gradient.defined() && gradient.layout() == torch::kStrided && gradient.is_contiguous() &&
         !gradient.requires_grad() && gradient.scalar_type() == a.scalar_type() &&
         gradient.device() == a.device() && gradient.dim() == 2 && gradient.size(0) == a.size(1) &&
         gradient.size(1) == b.size(1);
}

}  // namespace

OwnLeaves::OwnLeaves() : before_(leaves_are_own) { leaves_are_own = true; }
OwnLeaves::~OwnLeaves() { leaves_are_own = before_; }

bool has_hooks(torch::autograd::Node& node) {
  return compat::has_tensor_hooks(node) || !node.pre_hooks().empty() || !node.post_hooks().empty();
}

bool add_product_to_leaf(const torch::autograd::Edge& edge, const torch::Tensor& a,
                         const torch::Tensor& b) {
  if (!leaves_are_own) return false;
  auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
  if (leaf == nullptr || has_hooks(*leaf)) return false;
  if (!torch::autograd::impl::hooks(leaf->variable).empty()) return false;
  torch::Tensor& gradient = leaf->variable.mutable_grad();
  if (!takes_product(gradient, a, b)) return false;
  gradient.addmm_(a.t(), b);
  torch::autograd::impl::bump_version(gradient);  // below autograd nobody else does
  return true;
}

}  // namespace pipewright
