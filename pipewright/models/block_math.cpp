#include "pipewright/models/block_math.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/models/block_kernels.h"
#include "pipewright/models/causal_attention.h"
#include "pipewright/torch/gemm.h"

namespace pipewright {
namespace {

using kernels::Columns;
using kernels::Rows;
using torch::Tensor;

constexpr std::int64_t kGrain = 1 << 15;  // values a thread should have at least

template <typename Work>
void over_rows(const Tensor& matrix, const Work& work) {
  const std::int64_t columns = matrix.size(1);
  at::parallel_for(0, matrix.size(0), std::max<std::int64_t>(1, kGrain / columns),
                   [&](std::int64_t first, std::int64_t last) {
                     work(Rows{first, last, columns});
                   });
}

template <typename Work>
void over_columns(const Tensor& matrix, const Work& work) {
  const std::int64_t rows = matrix.size(0), width = matrix.size(1);
  at::parallel_for(0, width, std::max<std::int64_t>(1, kGrain / rows),
                   [&](std::int64_t first, std::int64_t last) {
                     work(Columns{first, last, width, rows});
                   });
}

template <typename T>
T* data(const Tensor& tensor) {
  return tensor.data_ptr<T>();
}

template <typename T>
Matrix<const T> matrix(const Tensor& tensor) {
  return {data<T>(tensor), tensor.size(1)};
}

/// x w, or x w^T.
template <typename T>
void product(const Tensor& x, Matrix<const T> w, const Tensor& out) {
  gemm({x.size(0), out.size(1), x.size(1)}, T(1), matrix<T>(x), w, T(0),
       {data<T>(out), out.size(1)});
}

template <typename T>
kernels::Norm<T> norm_of(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                         const Tensor& rstd, double epsilon) {
  return {data<T>(weight), bias.defined() ? data<T>(bias) : nullptr, data<T>(mean), data<T>(rstd),
          epsilon};
}

kernels::Gelu gelu_of(const BlockOptions& o) {
  return std::string_view(o.gelu) == "tanh" ? kernels::Gelu::kTanh : kernels::Gelu::kExact;
}

/// Those that lie row by row, as nearly all do, are not copied.
BlockWeights row_by_row(BlockWeights w) {
  for (Tensor* tensor : {&w.norm1, &w.norm1_bias, &w.qkv, &w.qkv_bias, &w.proj, &w.proj_bias,
                         &w.norm2, &w.norm2_bias, &w.up, &w.up_bias, &w.down, &w.down_bias})
    *tensor = tensor->contiguous();
  return w;
}

ChainWeights row_by_row(ChainWeights w) {
  for (Tensor* tensor : {&w.norm1, &w.qkv, &w.proj, &w.norm2, &w.up, &w.down})
    *tensor = tensor->contiguous();
  return w;
}

template <typename T>
BlockValues forward(const Tensor& x, const BlockWeights& w, const BlockOptions& o) {
  const auto b = x.size(0), t = x.size(1), c = x.size(2), rows = b * t, hidden = w.up.size(0);
  const Tensor in = x.reshape({rows, c}).contiguous();
  const auto make = [&](std::int64_t columns) { return at::empty({rows, columns}, in.options()); };
  const auto by_row = [&] { return at::empty({rows}, in.options()); };
  const auto norm = [&](const kernels::Norm<T>& with, const Tensor& from, const Tensor& to) {
    over_rows(from, [&](Rows r) { kernels::layer_norm(r, with, data<T>(from), data<T>(to)); });
  };
  const auto add = [&](const Tensor& bias, const Tensor& more, const Tensor& to) {
    over_rows(to,
              [&](Rows r) { kernels::add_bias_and(r, data<T>(bias), data<T>(more), data<T>(to)); });
  };
  BlockValues v;
  v.mean1 = by_row(), v.rstd1 = by_row(), v.h1 = make(c);
  norm(norm_of<T>(w.norm1, w.norm1_bias, v.mean1, v.rstd1, o.epsilon), in, v.h1);
  v.qkv = make(3 * c);
  product<T>(v.h1, matrix<T>(w.qkv).t(), v.qkv);
  over_rows(v.qkv, [&](Rows r) { kernels::add_bias(r, data<T>(w.qkv_bias), data<T>(v.qkv)); });
  v.mixed = make(c), v.sums = at::empty({b, o.heads, t}, in.options());
  causal_attention({b, t, o.heads, c / o.heads}, data<T>(v.qkv), data<T>(v.mixed), data<T>(v.sums));
  v.y = make(c);
  product<T>(v.mixed, matrix<T>(w.proj).t(), v.y);
  add(w.proj_bias, in, v.y);
  v.mean2 = by_row(), v.rstd2 = by_row(), v.h2 = make(c);
  norm(norm_of<T>(w.norm2, w.norm2_bias, v.mean2, v.rstd2, o.epsilon), v.y, v.h2);
  v.up = make(hidden), v.act = make(hidden);
  product<T>(v.h2, matrix<T>(w.up).t(), v.up);
  over_rows(v.up, [&](Rows r) {
    kernels::gelu(r, gelu_of(o), data<T>(w.up_bias), data<T>(v.up), data<T>(v.act));
  });
  const Tensor z = make(c);
  product<T>(v.act, matrix<T>(w.down).t(), z);
  add(w.down_bias, v.y, z);
  v.z = z.view({b, t, c});
  return v;
}

/// The gradients of a norm's weight, bias and input, to which `more` is added.
template <typename T>
void norm_backward(const kernels::Norm<T>& norm, const Tensor& x, const Tensor& out,
                   const Tensor& more, Tensor* weight, Tensor* bias, Tensor* in) {
  *weight = at::empty({x.size(1)}, x.options());
  *bias = at::empty({x.size(1)}, x.options());
  *in = at::empty_like(more);
  over_columns(x, [&](Columns c) {
    kernels::layer_norm_weights(c, norm, data<T>(x), data<T>(out), data<T>(*weight),
                                data<T>(*bias));
  });
  over_rows(x, [&](Rows r) {
    kernels::layer_norm_input(r, norm, data<T>(x), data<T>(out), data<T>(more), data<T>(*in));
  });
}

template <typename T>
BlockGradients run_backward(const Tensor& x, const Tensor& z, const BlockValues& v,
                            const ChainWeights& w, const BlockOptions& o, std::int64_t tokens) {
  const std::int64_t rows = x.size(0), c = x.size(1);
  BlockGradients g;
  g.z = z;
  g.up = at::empty_like(v.up);
  product<T>(z, matrix<T>(w.down), g.up);
  over_rows(g.up,
            [&](Rows r) { kernels::gelu_backward(r, gelu_of(o), data<T>(v.up), data<T>(g.up)); });
  const Tensor below = at::empty_like(z);  // at the output of a norm, or of attention
  product<T>(g.up, matrix<T>(w.up), below);
  norm_backward(norm_of<T>(w.norm2, {}, v.mean2, v.rstd2, o.epsilon), v.y, below, z, &g.norm2,
                &g.norm2_bias, &g.y);
  product<T>(g.y, matrix<T>(w.proj), below);
  g.qkv = at::empty_like(v.qkv);
  causal_attention_backward({rows / tokens, tokens, o.heads, c / o.heads}, data<T>(v.qkv),
                            data<T>(v.mixed), data<T>(v.sums), data<T>(below), data<T>(g.qkv));
  product<T>(g.qkv, matrix<T>(w.qkv), below);
  norm_backward(norm_of<T>(w.norm1, {}, v.mean1, v.rstd1, o.epsilon), x, below, g.y, &g.norm1,
                &g.norm1_bias, &g.x);
  return g;
}

}  // namespace

void check_block(const Tensor& x, const BlockWeights& w, const BlockOptions& o) {
  const std::int64_t c = x.size(2), hidden = w.up.size(0);
  const auto check = [&](const char* name, const Tensor& tensor, at::IntArrayRef sizes) {
    if (tensor.sizes() == sizes && tensor.is_cpu() && tensor.scalar_type() == x.scalar_type())
      return;
    throw InvalidArgument(
        "block", fmt::format("'{}' is {} [{}] on {}; for an input of width {} it must be {} [{}] "
                             "on a CPU",
                             name, c10::toString(tensor.scalar_type()),
                             fmt::join(tensor.sizes(), ", "), tensor.device().str(), c,
                             c10::toString(x.scalar_type()), fmt::join(sizes, ", ")));
  };
  if (o.heads < 1 || c % o.heads != 0) {
    throw InvalidArgument("block", fmt::format("{} heads do not divide a width of {}; use a number "
                                               "that does",
                                               o.heads, c));
  }
  check("norm1", w.norm1, {c});
  check("norm1_bias", w.norm1_bias, {c});
  check("qkv", w.qkv, {3 * c, c});
  check("qkv_bias", w.qkv_bias, {3 * c});
  check("proj", w.proj, {c, c});
  check("proj_bias", w.proj_bias, {c});
  check("norm2", w.norm2, {c});
  check("norm2_bias", w.norm2_bias, {c});
  check("up", w.up, {hidden, c});
  check("up_bias", w.up_bias, {hidden});
  check("down", w.down, {c, hidden});
  check("down_bias", w.down_bias, {c});
}

BlockValues block_forward(const Tensor& x, const BlockWeights& weights,
                          const BlockOptions& options) {
  const BlockWeights w = row_by_row(weights);
  return x.scalar_type() == torch::kDouble ? forward<double>(x, w, options)
                                           : forward<float>(x, w, options);
}

BlockGradients block_backward(const Tensor& x, const Tensor& z, const BlockValues& values,
                              const ChainWeights& weights, const BlockOptions& options,
                              std::int64_t tokens) {
  const ChainWeights w = row_by_row(weights);
  return x.scalar_type() == torch::kDouble ? run_backward<double>(x, z, values, w, options, tokens)
                                           : run_backward<float>(x, z, values, w, options, tokens);
}

Tensor bias_gradient(const Tensor& rows) {
  const Tensor sums = at::empty({rows.size(1)}, rows.options());
  over_columns(rows, [&](Columns c) {
    if (rows.scalar_type() == torch::kDouble)
      kernels::column_sums(c, data<double>(rows), data<double>(sums));
    else
      kernels::column_sums(c, data<float>(rows), data<float>(sums));
  });
  return sums;
}

}  // namespace pipewright
