#pragma once

#include <ATen/ATen.h>
#include <torch/version.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>

/// As compat.h, for what the fused block alone needs.
namespace pipewright::compat {

// Causal attention without autograd: for a node that has its own backward.
struct CausalAttention {
  at::Tensor out;    // (B, H, T, D)
  at::Tensor saved;  // for the backward
};

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
inline CausalAttention causal_attention(const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value) {
  const auto made = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0, true);
  return {std::get<0>(made), std::get<1>(made)};
}
/// Of query, key and value.
inline std::array<at::Tensor, 3> causal_attention_backward(const at::Tensor& gradient,
                                                           const at::Tensor& query,
                                                           const at::Tensor& key,
                                                           const at::Tensor& value,
                                                           const CausalAttention& made) {
  auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, query, key, value, made.out, made.saved, 0, true);
  return {q, k, v};
}
#else
inline CausalAttention causal_attention(const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value) {
  const double root = std::sqrt(static_cast<double>(query.size(-1)));
  auto scores = at::matmul(query / root, key.transpose(-1, -2));
  const double never = -std::numeric_limits<double>::infinity();
  scores.add_(at::full({scores.size(-2), scores.size(-1)}, never, scores.options()).triu_(1));
  CausalAttention made;
  made.saved = at::_softmax(scores, -1, false);  // the weights
  made.out = at::matmul(made.saved, value);
  return made;
}
inline std::array<at::Tensor, 3> causal_attention_backward(const at::Tensor& gradient,
                                                           const at::Tensor& query,
                                                           const at::Tensor& key,
                                                           const at::Tensor& value,
                                                           const CausalAttention& made) {
  const double root = std::sqrt(static_cast<double>(query.size(-1)));
  const auto weights = at::matmul(gradient, value.transpose(-1, -2));
  const auto scores =
      at::_softmax_backward_data(weights, made.saved, -1, made.saved.scalar_type()).div_(root);
  return {at::matmul(scores, key), at::matmul(scores.transpose(-1, -2), query),
          at::matmul(made.saved.transpose(-1, -2), gradient)};
}
#endif

}  // namespace pipewright::compat
