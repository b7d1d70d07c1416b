#pragma once

#include <torch/types.h>

namespace pipewright {

/// What torch::linear() gives: x (..., in) times the weight (out, in), transposed, plus the bias,
/// which may be undefined. In a Trainer it is a node of autograd of its own: the weight's gradient
/// is added to .grad within the matrix product (nn/leaf_gradient.h), where autograd would write
/// each micro-batch's to memory of its own, and read it again to add it; under autocast on a GPU
/// the products are added up in 32 bits, and the weight's copy in 16 is made twice instead of held.
/// Up to rounding the values are the same.
torch::Tensor accumulating_linear(const torch::Tensor& x, const torch::Tensor& weight,
                                  const torch::Tensor& bias = {});

}  // namespace pipewright
