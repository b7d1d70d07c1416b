#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace pipewright {

/// While one lives, nobody else adds to the gradients of the leaves that a backward on this thread
/// comes to.
class OwnLeaves {
 public:
  OwnLeaves();
  ~OwnLeaves();
  OwnLeaves(const OwnLeaves&) = delete;
  OwnLeaves& operator=(const OwnLeaves&) = delete;
  OwnLeaves(OwnLeaves&&) = delete;
  OwnLeaves& operator=(OwnLeaves&&) = delete;

 private:
  bool before_;
};

bool has_hooks(torch::autograd::Node& node);

/// For a node's backward, of a weight's gradient a^T b: adds it to the .grad of the leaf behind the
/// edge within the matrix product, instead of making a tensor of the weight's size that is written,
/// read again and added. False, with nothing done, where that would not be the same as returning
/// it: the leaf has no gradient yet, or one of another kind, somebody wants to see what arrives
/// there (hooks), or nobody has said that the leaf is ours (OwnLeaves).
bool add_product_to_leaf(const torch::autograd::Edge& edge, const torch::Tensor& a,
                         const torch::Tensor& b);

}  // namespace pipewright
