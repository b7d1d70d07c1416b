#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace pipewright {

class WeightCopies;

/// Graphs that are made on this thread while one lives are gone back through by backward()
/// (nn/backward.h) alone, and nobody else adds to the gradients of their leaves at that time.
class OwnGraphs {
 public:
  /// `copies`: where products get weights in 16 bits from, if anywhere.
  explicit OwnGraphs(WeightCopies* copies = nullptr);
  ~OwnGraphs();
  OwnGraphs(const OwnGraphs&) = delete;
  OwnGraphs& operator=(const OwnGraphs&) = delete;
  OwnGraphs(OwnGraphs&&) = delete;
  OwnGraphs& operator=(OwnGraphs&&) = delete;

  /// Whether one lives. For nodes to ask as they are made: a GPU's backward has a thread of its
  /// own.
  static bool any();
  static WeightCopies* copies();

 private:
  bool before_;
  WeightCopies* copies_before_;
};

bool has_hooks(torch::autograd::Node& node);

/// For a node made among OwnGraphs, of a weight's gradient a^T b: adds it to the .grad of the leaf
/// behind the edge within the matrix product, instead of making a tensor of the weight's size that
/// is written, read again and added. a and b may be in 16 bits where .grad is in 32, on a GPU.
/// False, with nothing done, where that would not be the same as returning it: the leaf has no
/// gradient yet, or one of another kind, or somebody wants to see what arrives there (hooks).
bool add_product_to_leaf(const torch::autograd::Edge& edge, const torch::Tensor& a,
                         const torch::Tensor& b);

/// a^T b, of the weight's type where LibTorch can make it so without a rounding between.
torch::Tensor weight_gradient(const torch::Tensor& a, const torch::Tensor& b,
                              torch::ScalarType type);

}  // namespace pipewright
