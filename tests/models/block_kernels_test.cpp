// The loops of a transformer block against LibTorch's operations in double precision.

#include "pipewright/models/block_kernels.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "pipewright/models/causal_attention.h"

namespace pipewright {
namespace {

using kernels::Gelu;
using torch::Tensor;

double difference(const Tensor& a, const Tensor& b) {
  return (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

/// From far below to far above 0, in small steps.
Tensor many_values(torch::ScalarType type) { return torch::linspace(-12, 12, 4803, type); }

template <typename T>
void compare_gelu(torch::ScalarType type, const char* name, Gelu kind, double tolerance) {
  const Tensor x = many_values(type).view({3, 1601}).requires_grad_();
  const Tensor exact = x.detach().to(torch::kDouble).requires_grad_();
  const Tensor right = torch::gelu(exact, name);
  right.sum().backward();
  const Tensor zeros = torch::zeros({1601}, type), in = x.detach().clone();
  const Tensor out = torch::empty_like(in), gradient = torch::ones_like(in);
  kernels::gelu({0, 3, 1601}, kind, zeros.data_ptr<T>(), in.data_ptr<T>(), out.data_ptr<T>());
  kernels::gelu_backward({0, 3, 1601}, kind, in.data_ptr<T>(), gradient.data_ptr<T>());
  EXPECT_TRUE(in.equal(x));
  EXPECT_LT(difference(out, right), tolerance);
  EXPECT_LT(difference(gradient, exact.grad()), tolerance);
}

TEST(BlockKernels, HaveBothGelus) {
  // 1e-6 where the values are up to 12: some units in the last place.
  compare_gelu<float>(torch::kFloat, "none", Gelu::kExact, 2e-6);
  compare_gelu<float>(torch::kFloat, "tanh", Gelu::kTanh, 2e-6);
  compare_gelu<double>(torch::kDouble, "none", Gelu::kExact, 1e-14);
  compare_gelu<double>(torch::kDouble, "tanh", Gelu::kTanh, 1e-14);
}

TEST(BlockKernels, LetGeluBeSmallFarBelowZero) {
  const Tensor x = torch::tensor({-100.0F, -15.0F, 100.0F}), zeros = torch::zeros({3});
  const Tensor out = torch::empty_like(x);
  for (const Gelu kind : {Gelu::kExact, Gelu::kTanh}) {
    kernels::gelu({0, 1, 3}, kind, zeros.data_ptr<float>(), x.data_ptr<float>(),
                  out.data_ptr<float>());
    EXPECT_NEAR(out[0].item<float>(), 0, 1e-30);
    EXPECT_NEAR(out[1].item<float>(), 0, 1e-12);
    EXPECT_EQ(out[2].item<float>(), 100);
  }
}

TEST(BlockKernels, PassOnWhatIsNotANumber) {
  const Tensor x = torch::tensor({std::nanf(""), 1.0F}), zeros = torch::zeros({2});
  const Tensor out = torch::empty_like(x), gradient = torch::ones_like(x);
  for (const Gelu kind : {Gelu::kExact, Gelu::kTanh}) {
    kernels::gelu({0, 1, 2}, kind, zeros.data_ptr<float>(), x.data_ptr<float>(),
                  out.data_ptr<float>());
    EXPECT_TRUE(out[0].isnan().item<bool>());
    kernels::gelu_backward({0, 1, 2}, kind, x.data_ptr<float>(), gradient.data_ptr<float>());
    EXPECT_TRUE(gradient[0].isnan().item<bool>());
    EXPECT_FALSE(out[1].isnan().item<bool>());
  }
}

/// However rows and columns are shared among threads: the same bits.
TEST(BlockKernels, DoNotDependOnWhoHasWhichRowsAndColumns) {
  constexpr std::int64_t kRows = 9, kColumns = 37;
  torch::manual_seed(4);
  const auto matrix = [] { return torch::randn({kRows, kColumns}); };
  const Tensor x = matrix(), gradient = matrix(), more = matrix();
  const Tensor weight = torch::randn({kColumns}), bias = torch::randn({kColumns});
  const auto run = [&](std::int64_t cut_rows, std::int64_t cut_columns) {
    const Tensor mean = torch::empty({kRows}), rstd = torch::empty({kRows});
    const Tensor out = matrix(), in = matrix(), sums = torch::empty({kColumns});
    const Tensor by_weight = torch::empty({kColumns}), by_bias = torch::empty({kColumns});
    const Tensor up = x.clone(), act = matrix(), back = gradient.clone();
    const auto data = [](const Tensor& tensor) { return tensor.data_ptr<float>(); };
    const kernels::Norm<float> norm{data(weight), data(bias), data(mean), data(rstd), 1e-5};
    for (const auto& [first, last] :
         {std::pair<std::int64_t, std::int64_t>(0, cut_rows), {cut_rows, kRows}}) {
      const kernels::Rows rows{first, last, kColumns};
      kernels::layer_norm(rows, norm, data(x), data(out));
      kernels::layer_norm_input(rows, norm, data(x), data(gradient), data(more), data(in));
      kernels::gelu(rows, Gelu::kExact, data(bias), data(up), data(act));
      kernels::gelu_backward(rows, Gelu::kExact, data(up), data(back));
    }
    for (const auto& [first, last] :
         {std::pair<std::int64_t, std::int64_t>(0, cut_columns), {cut_columns, kColumns}}) {
      const kernels::Columns columns{first, last, kColumns, kRows};
      kernels::column_sums(columns, data(gradient), data(sums));
      kernels::layer_norm_weights(columns, norm, data(x), data(gradient), data(by_weight),
                                  data(by_bias));
    }
    return std::vector<Tensor>{out, in, mean, rstd, act, back, sums, by_weight, by_bias};
  };
  const auto right = run(kRows, kColumns);
  for (const std::int64_t cut : {1, 4, 8}) {
    const auto ours = run(cut, 4 * cut);
    for (std::size_t i = 0; i < right.size(); ++i) EXPECT_TRUE(ours[i].equal(right[i])) << i;
  }
}

/// The weights of attention one by one, in double.
Tensor plain_attention(const Tensor& qkv, const AttentionSizes& s) {
  const auto parts = qkv.to(torch::kDouble)
                         .view({s.batch, s.tokens, 3, s.heads, s.width})
                         .permute({2, 0, 3, 1, 4});
  const auto hidden = torch::ones({s.tokens, s.tokens}, torch::kBool).triu(1);
  const auto scores =
      torch::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(s.width));
  return torch::matmul(torch::softmax(scores.masked_fill(hidden, -HUGE_VAL), -1), parts[2])
      .transpose(1, 2)
      .reshape({s.batch * s.tokens, s.heads * s.width});
}

template <typename T>
void compare_attention(torch::ScalarType type, const AttentionSizes& s, double size,
                       double tolerance) {
  torch::manual_seed(5);
  const std::int64_t rows = s.batch * s.tokens, columns = s.heads * s.width;
  const Tensor qkv = (size * torch::randn({rows, 3 * columns}, type)).requires_grad_();
  const Tensor seed = torch::randn({rows, columns}, type);
  const Tensor right = plain_attention(qkv, s);
  const Tensor right_gradient = torch::autograd::grad({right}, {qkv}, {seed.to(torch::kDouble)})[0];
  const Tensor out = torch::empty_like(seed), gradient = torch::empty_like(qkv);
  const Tensor sums = torch::empty({s.batch, s.heads, s.tokens}, type);
  const Tensor in = qkv.detach();
  causal_attention(s, in.data_ptr<T>(), out.data_ptr<T>(), sums.data_ptr<T>());
  causal_attention_backward(s, in.data_ptr<T>(), out.data_ptr<T>(), sums.data_ptr<T>(),
                            seed.data_ptr<T>(), gradient.data_ptr<T>());
  EXPECT_LT(difference(out, right), tolerance) << s.tokens << " tokens";
  EXPECT_LT(difference(gradient, right_gradient), tolerance) << s.tokens << " tokens";
}

TEST(CausalAttention, IsThatOfItsDefinitionForAnyNumberOfTokens) {
  for (const std::int64_t tokens : {1, 2, 15, 16, 31, 32, 33, 64, 65, 100}) {
    compare_attention<double>(torch::kDouble, {2, tokens, 3, 5}, 1, 1e-13);
    compare_attention<float>(torch::kFloat, {2, tokens, 3, 5}, 1, 2e-5);
  }
}

TEST(CausalAttention, TakesScoresWhoseExponentialsDoNotFit) {
  compare_attention<double>(torch::kDouble, {1, 40, 2, 8}, 40, 1e-9);
  compare_attention<float>(torch::kFloat, {1, 40, 2, 8}, 12, 2e-2);
}

}  // namespace
}  // namespace pipewright
