#pragma once

#include <cstdint>

namespace pipewright {

/// Self-attention of `batch` sentences: matrices have batch * tokens rows, one sentence after the
/// other; queries, keys and values lie beside each other, 3 * heads * width columns, their outputs
/// in heads * width columns.
struct AttentionSizes {
  std::int64_t batch = 0, tokens = 0, heads = 0, width = 0;  // width: of a head
};

// Each token attends to itself and those before it. Neither keeps the matrix of weights, nor makes
// more of it than some rows at a time; what no query may see is left out of the products, but for
// the blocks on the diagonal.

/// out: what attention gives. sums (batch, heads, tokens): for the backward.
void causal_attention(const AttentionSizes& sizes, const float* qkv, float* out, float* sums);
void causal_attention(const AttentionSizes& sizes, const double* qkv, double* out, double* sums);

/// The gradient of qkv for that of `out`.
void causal_attention_backward(const AttentionSizes& sizes, const float* qkv, const float* out,
                               const float* sums, const float* out_gradient, float* qkv_gradient);
void causal_attention_backward(const AttentionSizes& sizes, const double* qkv, const double* out,
                               const double* sums, const double* out_gradient,
                               double* qkv_gradient);

}  // namespace pipewright
