// A block as one node of autograd against the operations one by one, written plainly here.

#include "pipewright/models/fused_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/nn/autocast.h"
#include "pipewright/nn/backward.h"
#include "pipewright/nn/leaf_gradient.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using torch::Tensor;

constexpr std::int64_t kDim = 12;
constexpr std::int64_t kHeads = 3;
constexpr double kEpsilon = 1e-5;

/// The block's inputs: x and its parameters, leaves.
struct Inputs {
  Tensor x;
  BlockWeights weights;

  Tensors all() const {
    const BlockWeights& w = weights;
    return {x,       w.norm1,      w.norm1_bias, w.qkv,     w.qkv_bias, w.proj,     w.proj_bias,
            w.norm2, w.norm2_bias, w.up,         w.up_bias, w.down,     w.down_bias};
  }
};

Inputs make_inputs(std::int64_t rows = 2, std::int64_t tokens = 5,
                   torch::ScalarType type = torch::kFloat64) {
  torch::manual_seed(7);
  const auto leaf = [&](std::vector<std::int64_t> sizes) {
    return (0.5 * torch::randn(sizes, type)).requires_grad_();
  };
  return {leaf({rows, tokens, kDim}),
          {leaf({kDim}), leaf({kDim}), leaf({3 * kDim, kDim}), leaf({3 * kDim}), leaf({kDim, kDim}),
           leaf({kDim}), leaf({kDim}), leaf({kDim}), leaf({4 * kDim, kDim}), leaf({4 * kDim}),
           leaf({kDim, 4 * kDim}), leaf({kDim})}};
}

Tensor plain_block(const Tensor& x, const BlockWeights& w, const char* gelu) {
  const auto b = x.size(0), t = x.size(1);
  const auto parts = torch::linear(torch::layer_norm(x, {kDim}, w.norm1, w.norm1_bias, kEpsilon),
                                   w.qkv, w.qkv_bias)
                         .view({b, t, 3, kHeads, kDim / kHeads})
                         .permute({2, 0, 3, 1, 4});
  const auto hidden = torch::ones({t, t}, torch::kBool).triu(1);
  const auto scores = torch::matmul(parts[0], parts[1].transpose(-1, -2)) /
                      std::sqrt(static_cast<double>(kDim / kHeads));
  const auto mixed =
      torch::matmul(
          torch::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1),
          parts[2])
          .transpose(1, 2)
          .reshape({b, t, kDim});
  const auto y = x + torch::linear(mixed, w.proj, w.proj_bias);
  const auto up =
      torch::linear(torch::layer_norm(y, {kDim}, w.norm2, w.norm2_bias, kEpsilon), w.up, w.up_bias);
  return y + torch::linear(torch::gelu(up, gelu), w.down, w.down_bias);
}

Tensor fused(const Inputs& inputs, const char* gelu = "none") {
  return fused_block(inputs.x, inputs.weights, {kHeads, kEpsilon, gelu});
}

double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

class FusedBlock : public testing::TestWithParam<std::tuple<int, int, const char*>> {};

TEST_P(FusedBlock, HasTheValuesAndGradientsOfItsOperations) {
  const auto& [rows, tokens, gelu] = GetParam();
  const Inputs inputs = make_inputs(rows, tokens);
  const Tensor expected = plain_block(inputs.x, inputs.weights, gelu);
  const Tensor got = fused(inputs, gelu);
  EXPECT_LT(difference(got, expected), 1e-12);
  const Tensor seed = torch::randn_like(expected);
  const auto right = torch::autograd::grad({expected}, inputs.all(), {seed});
  const auto ours = torch::autograd::grad({got}, inputs.all(), {seed});
  for (std::size_t i = 0; i < right.size(); ++i)
    EXPECT_LT(difference(ours[i], right[i]), 1e-11) << "of input " << i;
}

INSTANTIATE_TEST_SUITE_P(All, FusedBlock,
                         testing::Combine(testing::Values(1, 3),
                                          testing::Values(1, 2, 7, 32, 33, 70),
                                          testing::Values("none", "tanh")));

TEST(FusedBlocks, TakeAnInputThatLiesOtherwise) {
  Inputs inputs = make_inputs();
  const Tensor across = inputs.x.detach().transpose(0, 1).contiguous().transpose(0, 1);
  ASSERT_FALSE(across.is_contiguous());
  EXPECT_TRUE(fused_block(across, inputs.weights, {kHeads, kEpsilon}).equal(fused(inputs)));
}

TEST(FusedBlocks, TakeWeightsThatLieOtherwise) {
  const Inputs inputs = make_inputs();
  Inputs across = inputs;
  across.weights.qkv = inputs.weights.qkv.detach().t().contiguous().t().requires_grad_();
  ASSERT_FALSE(across.weights.qkv.is_contiguous());
  EXPECT_TRUE(fused(across).equal(fused(inputs)));
  const auto right = torch::autograd::grad({fused(inputs).sum()}, inputs.all());
  const auto ours = torch::autograd::grad({fused(across).sum()}, across.all());
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_TRUE(ours[i].equal(right[i])) << i;
}

TEST(FusedBlocks, AreAsPreciseIn32BitsAsTheirOperations) {
  for (const char* gelu : {"none", "tanh"}) {
    const Inputs exact = make_inputs(3, 40);
    Inputs inputs = exact;
    const auto to_float = [](Tensor* t) { *t = t->detach().to(torch::kFloat).requires_grad_(); };
    BlockWeights& w = inputs.weights;
    for (Tensor* t :
         {&inputs.x, &w.norm1, &w.norm1_bias, &w.qkv, &w.qkv_bias, &w.proj, &w.proj_bias, &w.norm2,
          &w.norm2_bias, &w.up, &w.up_bias, &w.down, &w.down_bias})
      to_float(t);
    const Tensor seed = torch::randn_like(exact.x);
    const auto gradients = [&](const Tensor& out, const Inputs& of) {
      auto all = torch::autograd::grad({out}, of.all(), {seed.to(out.scalar_type())});
      all.push_back(out);
      return all;
    };
    const auto right = gradients(plain_block(exact.x, exact.weights, gelu), exact);
    const auto plain = gradients(plain_block(inputs.x, inputs.weights, gelu), inputs);
    const auto ours = gradients(fused(inputs, gelu), inputs);
    for (std::size_t i = 0; i < right.size(); ++i) {
      const double scale = right[i].abs().max().item<double>();
      EXPECT_LT(difference(ours[i], right[i]), 4 * difference(plain[i], right[i]) + 1e-6 * scale)
          << "of input " << i << ", " << gelu;
    }
  }
}

TEST(FusedBlocks, SayWhichWeightDoesNotFit) {
  const auto refused = [](const auto& change) {
    Inputs inputs = make_inputs();
    change(&inputs.weights);
    return refusal([&] { fused(inputs); });
  };
  EXPECT_THAT(refused([](BlockWeights* w) {
                w->down = torch::ones({kDim, kDim}, torch::kFloat64);
              }),
              testing::AllOf(HasSubstr("'down' is Double [12, 12] on cpu"),
                             HasSubstr("must be Double [12, 48]")));
  EXPECT_THAT(refused([](BlockWeights* w) { w->norm2 = torch::ones({kDim}); }),
              HasSubstr("'norm2' is Float [12]"));
  const Inputs inputs = make_inputs();
  EXPECT_THAT(refusal([&] {
                fused_block(inputs.x, inputs.weights, {5, kEpsilon});
              }),
              HasSubstr("5 heads do not divide a width of 12"));
}

/// Gradients of every parameter, from .grad, which is then forgotten.
Tensors take_gradients(const Inputs& inputs) {
  Tensors gradients;
  for (const Tensor& leaf : inputs.all()) {
    gradients.push_back(leaf.grad());
    leaf.mutable_grad() = Tensor();
  }
  return gradients;
}

TEST(FusedBlocks, AreSplitIntoHalvesWithTheSameBits) {
  const OwnGraphs own;
  const Inputs inputs = make_inputs();
  const auto two = [&] {  // each node's input half is followed by that of another one
    const Tensor first = fused(inputs);
    return fused_block(first, inputs.weights, {kHeads, kEpsilon});
  };
  const Tensor seed = torch::randn_like(inputs.x);
  const auto whole = backward({two()}, {seed}, {inputs.x});
  const Tensors right = take_gradients(inputs);
  InputHalf half = backward_input({two()}, {seed}, {inputs.x});
  EXPECT_TRUE(half.input_gradients[0].equal(whole.input_gradients[0]));
  for (const Tensor& gradient : take_gradients(inputs)) EXPECT_FALSE(gradient.defined());
  half.weight_half.run();
  const Tensors ours = take_gradients(inputs);
  for (std::size_t i = 1; i < right.size(); ++i)
    EXPECT_TRUE(ours[i].equal(right[i])) << "of input " << i;
}

/// The gradients of several micro-batches, by `run`, which goes back from an output.
template <typename Run>
Tensors sum_gradients(const Inputs& inputs, const Run& run) {
  torch::manual_seed(3);
  for (int m = 0; m < 3; ++m) {
    const Tensor x = torch::randn_like(inputs.x).requires_grad_();
    const Tensor out = fused_block(x, inputs.weights, {kHeads, kEpsilon});
    run(x, out, torch::randn_like(out));
  }
  Tensors gradients = take_gradients(inputs);
  gradients.erase(gradients.begin());  // x's
  return gradients;
}

TEST(FusedBlocks, AddToGradientsWithinTheirProducts) {
  const Inputs inputs = make_inputs();
  const Tensors right = sum_gradients(
      inputs, [](const Tensor&, const Tensor& out, const Tensor& seed) { out.backward(seed); });
  const OwnGraphs own;
  Tensor up_grad;  // stays the same tensor, and knows that it was written into
  const Tensors whole =
      sum_gradients(inputs, [&](const Tensor& x, const Tensor& out, const Tensor& seed) {
        const auto version = up_grad.defined() ? up_grad._version() : 0;
        backward({out}, {seed}, {x});
        if (up_grad.defined()) {
          EXPECT_TRUE(up_grad.is_same(inputs.weights.up.grad()));
          EXPECT_GT(up_grad._version(), version);
        }
        up_grad = inputs.weights.up.grad();
      });
  const Tensors halves =
      sum_gradients(inputs, [](const Tensor& x, const Tensor& out, const Tensor& seed) {
        backward_input({out}, {seed}, {x}).weight_half.run();
      });
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_LT(difference(whole[i], right[i]), 1e-12) << i;
    EXPECT_TRUE(halves[i].equal(whole[i])) << i;
  }
}

TEST(FusedBlocks, GoByTheHooksOfTheirWeights) {
  const OwnGraphs own;
  const Inputs inputs = make_inputs();
  const auto go_back = [](const Tensor& x, const Tensor& out, const Tensor& seed) {
    backward({out}, {seed}, {x});
  };
  const Tensors right = sum_gradients(inputs, go_back);
  inputs.weights.up.register_hook([](const Tensor& gradient) { return gradient * 2; });
  const Tensors ours = sum_gradients(inputs, go_back);
  const std::size_t up = 8;
  ASSERT_TRUE(inputs.all()[up + 1].is_same(inputs.weights.up));
  EXPECT_LT(difference(ours[up], right[up] * 2), 1e-12);
}

TEST(FusedBlocks, LeaveFrozenParametersAlone) {
  const Inputs all = make_inputs();
  const auto right = torch::autograd::grad({fused(all).sum()}, all.all());
  for (std::size_t frozen = 0; frozen < right.size(); ++frozen) {
    const Inputs inputs = make_inputs();
    inputs.all()[frozen].set_requires_grad(false);
    fused(inputs).sum().backward();
    const Tensors ours = take_gradients(inputs);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (i == frozen) {
        EXPECT_FALSE(ours[i].defined()) << i;
      } else {
        EXPECT_TRUE(ours[i].equal(right[i])) << i << " with " << frozen << " frozen";
      }
    }
  }
}

TEST(FusedBlocks, HaveNoGraphWhereNothingLearns) {
  const Inputs inputs = make_inputs();
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(fused(inputs).requires_grad());
  }
  for (const Tensor& leaf : inputs.all()) leaf.set_requires_grad(false);
  EXPECT_FALSE(fused(inputs).requires_grad());
}

TEST(FusedBlocks, NoticeAWeightThatChangedBeforeTheBackward) {
  const Inputs inputs = make_inputs();
  const Tensor out = fused(inputs);
  {
    const torch::NoGradGuard no_grad;
    inputs.weights.up.add_(1);
  }
  EXPECT_THROW(out.sum().backward(), c10::Error);
}

TEST(FusedBlocks, RefuseASecondDerivative) {
  const Inputs inputs = make_inputs();
  EXPECT_THAT(
      refusal([&] { torch::autograd::grad({fused(inputs).sum()}, {inputs.x}, {}, true, true); }),
      HasSubstr("no second derivative"));
}

TEST(FusedBlocks, AreNotForAutocastOtherTypesOrShapes) {
  EXPECT_TRUE(can_fuse_block(torch::ones({1, 2, 4})));
  EXPECT_TRUE(can_fuse_block(torch::ones({1, 2, 4}, torch::kFloat64)));
  EXPECT_FALSE(can_fuse_block(torch::ones({1, 2, 4}, torch::kBFloat16)));
  EXPECT_FALSE(can_fuse_block(torch::ones({2, 4})));
  EXPECT_FALSE(can_fuse_block(torch::ones({0, 2, 4})));
  const AutocastScope autocast(torch::kCPU, Precision::kBf16);
  EXPECT_FALSE(can_fuse_block(torch::ones({1, 2, 4})));
}

}  // namespace
}  // namespace pipewright
