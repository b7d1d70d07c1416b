#include "pipewright/models/causal_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "pipewright/models/block_kernels.h"
#include "pipewright/torch/gemm.h"

namespace pipewright {
namespace {

using kernels::Queries;

constexpr std::int64_t kBlock =
    32;  // queries at a time: of 32, 64 and 128 the fastest for 128 tokens

/// What one head has of a sentence's matrices.
template <typename T>
struct Head {
  Matrix<T> query, key, value;  // of qkv, or of its gradient
};

template <typename T>
Head<T> head_of(const AttentionSizes& s, T* qkv, std::int64_t sentence, std::int64_t head) {
  const std::int64_t columns = s.heads * s.width;
  T* at = qkv + sentence * s.tokens * 3 * columns + head * s.width;
  return {{at, 3 * columns}, {at + columns, 3 * columns}, {at + 2 * columns, 3 * columns}};
}

template <typename T>
Matrix<T> out_of(const AttentionSizes& s, T* out, std::int64_t sentence, std::int64_t head) {
  const std::int64_t columns = s.heads * s.width;
  return {out + sentence * s.tokens * columns + head * s.width, columns};
}

template <typename T>
Matrix<T> from_row(Matrix<T> matrix, std::int64_t row) {
  return {matrix.data + row * matrix.stride, matrix.stride};
}

template <typename T>
T scale_of(const AttentionSizes& s) {
  return 1 / std::sqrt(static_cast<T>(s.width));
}

template <typename T>
void attend(const AttentionSizes& s, const Head<const T>& head, Matrix<T> out, T* sums, T* scores) {
  for (std::int64_t first = 0; first < s.tokens; first += kBlock) {
    const Queries queries{first, std::min(first + kBlock, s.tokens)};
    const std::int64_t count = queries.last - first, seen = queries.last;
    const Matrix<T> weights{scores, seen};
    gemm({count, seen, s.width}, scale_of<T>(s), from_row(head.query, first), head.key.t(), T(0),
         weights);
    kernels::causal_softmax(queries, scores, sums);
    gemm({count, s.width, seen}, T(1), {scores, seen}, head.value, T(0), from_row(out, first));
  }
}

/// From the last queries, which see all keys, to the first: what keys and values get is written
/// before it is added to.
template <typename T>
void attend_back(const AttentionSizes& s, const Head<const T>& head, Matrix<const T> out,
                 const T* sums, Matrix<const T> out_gradient, const Head<T>& gradient, T* scores) {
  T* of_scores = scores + kBlock * s.tokens;
  T* dots = of_scores + kBlock * s.tokens;
  for (std::int64_t i = 0; i < s.tokens; ++i)
    dots[i] = kernels::dot(s.width, from_row(out, i).data, from_row(out_gradient, i).data);
  const std::int64_t blocks = (s.tokens + kBlock - 1) / kBlock;
  for (std::int64_t first = (blocks - 1) * kBlock; first >= 0; first -= kBlock) {
    const Queries queries{first, std::min(first + kBlock, s.tokens)};
    const std::int64_t count = queries.last - first, seen = queries.last;
    const Matrix<const T> weights{scores, seen}, changes{of_scores, seen};
    const auto query = from_row(head.query, first), above = from_row(out_gradient, first);
    const T scale = scale_of<T>(s), more = seen == s.tokens ? 0 : 1;
    gemm({count, seen, s.width}, scale, query, head.key.t(), T(0), {scores, seen});
    gemm({count, seen, s.width}, T(1), above, head.value.t(), T(0), {of_scores, seen});
    kernels::causal_softmax_backward(queries, sums, dots, scores, of_scores);
    gemm({seen, s.width, count}, T(1), weights.t(), above, more, gradient.value);
    gemm({seen, s.width, count}, scale, changes.t(), query, more, gradient.key);
    gemm({count, s.width, seen}, scale, changes, head.key, T(0), from_row(gradient.query, first));
  }
}

/// Calls it for every head of every sentence, with `buffer` values of memory.
template <typename T, typename Work>
void for_all_heads(const AttentionSizes& s, std::int64_t buffer, const Work& work) {
  at::parallel_for(0, s.batch * s.heads, 1, [&](std::int64_t first, std::int64_t last) {
    const auto memory = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(buffer));
    for (std::int64_t i = first; i < last; ++i) work(i / s.heads, i % s.heads, memory.get());
  });
}

template <typename T>
void attention(const AttentionSizes& s, const T* qkv, T* out, T* sums) {
  for_all_heads<T>(s, std::min(kBlock, s.tokens) * s.tokens,
                   [&](std::int64_t sentence, std::int64_t head, T* memory) {
                     attend<T>(s, head_of(s, qkv, sentence, head), out_of(s, out, sentence, head),
                               sums + (sentence * s.heads + head) * s.tokens, memory);
                   });
}

template <typename T>
void attention_backward(const AttentionSizes& s, const T* qkv, const T* out, const T* sums,
                        const T* out_gradient, T* qkv_gradient) {
  for_all_heads<T>(
      s, (2 * kBlock + 1) * s.tokens, [&](std::int64_t sentence, std::int64_t head, T* memory) {
        attend_back<T>(s, head_of(s, qkv, sentence, head), out_of(s, out, sentence, head),
                       sums + (sentence * s.heads + head) * s.tokens,
                       out_of(s, out_gradient, sentence, head),
                       head_of(s, qkv_gradient, sentence, head), memory);
      });
}

}  // namespace

void causal_attention(const AttentionSizes& sizes, const float* qkv, float* out, float* sums) {
  attention(sizes, qkv, out, sums);
}
void causal_attention(const AttentionSizes& sizes, const double* qkv, double* out, double* sums) {
  attention(sizes, qkv, out, sums);
}

void causal_attention_backward(const AttentionSizes& sizes, const float* qkv, const float* out,
                               const float* sums, const float* out_gradient, float* qkv_gradient) {
  attention_backward(sizes, qkv, out, sums, out_gradient, qkv_gradient);
}
void causal_attention_backward(const AttentionSizes& sizes, const double* qkv, const double* out,
                               const double* sums, const double* out_gradient,
                               double* qkv_gradient) {
  attention_backward(sizes, qkv, out, sums, out_gradient, qkv_gradient);
}

}  // namespace pipewright
