#pragma once

#include <torch/torch.h>

#include "pipewright/models/fused_block.h"

namespace pipewright {

// What a fused block computes, without autograd: matrix products by the BLAS, and the loops of
// block_kernels.h between them.

/// What the forward makes, in rows (B * T).
struct BlockValues {
  torch::Tensor mean1, rstd1, h1;  // of norm1
  torch::Tensor qkv;
  torch::Tensor mixed, sums;  // what attention gives, and what its backward needs
  torch::Tensor y;
  torch::Tensor mean2, rstd2, h2;  // of norm2
  torch::Tensor up, act;           // before and after GELU
  torch::Tensor z;                 // (B, T, C)
};

/// Gradients at the outputs of the projections, from which those of weights follow; the norms'; and
/// the input's.
struct BlockGradients {
  torch::Tensor qkv, y, up, z;
  torch::Tensor norm1, norm1_bias, norm2, norm2_bias;
  torch::Tensor x;  // in rows
};

/// Weights that the gradients of a block's values need.
struct ChainWeights {
  torch::Tensor norm1, qkv, proj, norm2, up, down;
};

/// Throws InvalidArgument where x and the weights do not fit each other.
void check_block(const torch::Tensor& x, const BlockWeights& weights, const BlockOptions& options);

BlockValues block_forward(const torch::Tensor& x, const BlockWeights& weights,
                          const BlockOptions& options);

/// From the gradient of the output to that of the input. x and z in rows, as the others; `tokens`:
/// of a sentence.
BlockGradients block_backward(const torch::Tensor& x, const torch::Tensor& z,
                              const BlockValues& values, const ChainWeights& weights,
                              const BlockOptions& options, std::int64_t tokens);

/// The gradient of a bias: the sum of those rows.
torch::Tensor bias_gradient(const torch::Tensor& rows);

}  // namespace pipewright
