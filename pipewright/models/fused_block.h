#pragma once

#include <torch/torch.h>

namespace pipewright {

/// The parameters of a transformer block that normalises before attention and before its MLP. Each
/// of the four projections is of a (out, in) weight and a bias.
struct BlockWeights {
  torch::Tensor norm1, norm1_bias;
  torch::Tensor qkv, qkv_bias;    // queries, keys and values, one after the other
  torch::Tensor proj, proj_bias;  // of what attention gives
  torch::Tensor norm2, norm2_bias;
  torch::Tensor up, up_bias;
  torch::Tensor down, down_bias;
};

struct BlockOptions {
  std::int64_t heads = 1;
  double epsilon = 1e-5;      // of both norms
  const char* gelu = "none";  // or "tanh"
};

/// Whether fused_block() takes such an input now: on the CPU, in full precision, and nothing looks
/// at the single operations (autocast, a trace).
bool can_fuse_block(const torch::Tensor& x);

/// A causal block as one node of autograd, for x (B, T, C):
///
///     y = x + proj(attention(qkv(norm1(x))))
///     z = y + down(gelu(up(norm2(y))))
///
/// What it computes is what LibTorch's operations one by one would, up to rounding, without them:
/// they cost some microseconds each beside their work, of a block of width 64 most of its time
/// (block_math.h). The backward knows both halves of a split one (nn/backward.h). There is no
/// second derivative: asking for one throws. Throws InvalidArgument where weights do not fit x.
torch::Tensor fused_block(const torch::Tensor& x, const BlockWeights& weights,
                          const BlockOptions& options);

}  // namespace pipewright
