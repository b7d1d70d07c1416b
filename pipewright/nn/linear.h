#pragma once

#include <torch/types.h>

namespace pipewright {

/// What torch::linear() gives: x (..., in) times the weight (out, in), transposed, plus the bias,
/// which may be undefined. On the CPU, in full precision, it is a node of autograd of its own: in a
/// Trainer's backward the weight's gradient is added to .grad within the matrix product
/// (nn/leaf_gradient.h), where autograd would write each micro-batch's to memory of its own, and
/// read it again to add it. Up to rounding the values are the same.
torch::Tensor accumulating_linear(const torch::Tensor& x, const torch::Tensor& weight,
                                  const torch::Tensor& bias = {});

}  // namespace pipewright
