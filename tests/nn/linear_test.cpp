// accumulating_linear() against torch::linear().

#include "pipewright/nn/linear.h"

#include <gtest/gtest.h>

#include "pipewright/memory/meter.h"
#include "pipewright/nn/autocast.h"
#include "pipewright/nn/backward.h"

namespace pipewright {
namespace {

using torch::Tensor;

using Sizes = std::vector<std::int64_t>;

struct Inputs {
  Tensor x, weight, bias;

  Tensors all() const { return {x, weight, bias}; }
};

Inputs make_inputs(const Sizes& sizes, std::int64_t out = 5) {
  torch::manual_seed(11);
  const auto leaf = [](const Sizes& of) {
    return torch::randn(of, torch::kFloat64).requires_grad_();
  };
  return {leaf(sizes), leaf({out, sizes.back()}), leaf({out})};
}

Tensor ours(const Inputs& i) { return accumulating_linear(i.x, i.weight, i.bias); }
Tensor right(const Inputs& i) { return torch::linear(i.x, i.weight, i.bias); }

/// Its node, not LibTorch's.
bool is_own(const Tensor& out) {
  return out.grad_fn() != nullptr && out.grad_fn()->name() == "LinearBackward";
}

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LT((a - b).abs().max().item<double>(), 1e-12);
}

class LinearOf : public testing::TestWithParam<Sizes> {};

TEST_P(LinearOf, HasTheValuesAndGradientsOfTorchs) {
  const Inputs inputs = make_inputs(GetParam());
  const Tensor out = ours(inputs);
  EXPECT_TRUE(is_own(out));
  expect_near(out, right(inputs));
  const Tensor seed = torch::randn_like(out);
  const auto got = torch::autograd::grad({out}, inputs.all(), {seed});
  const auto expected = torch::autograd::grad({right(inputs)}, inputs.all(), {seed});
  for (std::size_t i = 0; i < got.size(); ++i) expect_near(got[i], expected[i]);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearOf,
                         testing::Values(Sizes{1, 1}, Sizes{4, 3}, Sizes{2, 4, 3},
                                         Sizes{2, 1, 3, 6}));

TEST(Linear, TakesInputsThatLieOtherwiseAndNoBias) {
  const Inputs inputs = make_inputs({4, 2, 3});
  const Tensor across = inputs.x.transpose(0, 1);
  const Tensor out = accumulating_linear(across, inputs.weight);
  EXPECT_TRUE(is_own(out));
  const Tensor expected = torch::linear(across, inputs.weight);
  expect_near(out, expected);
  const Tensor seed = torch::randn_like(out).transpose(0, 1).contiguous().transpose(0, 1);
  expect_near(torch::autograd::grad({out}, {inputs.x}, {seed})[0],
              torch::autograd::grad({expected}, {inputs.x}, {seed})[0]);
}

/// The parameters' gradients after three micro-batches, and the inputs'.
template <typename Forward, typename Back>
Tensors train(const Inputs& inputs, const Forward& forward, const Back& back) {
  torch::manual_seed(5);
  Tensors gradients;
  for (int m = 0; m < 3; ++m) {
    const Inputs now = {torch::randn_like(inputs.x).requires_grad_(), inputs.weight, inputs.bias};
    const Tensor out = forward(now);
    gradients.push_back(back(out, torch::randn_like(out), now.x));
  }
  for (Tensor parameter : {inputs.weight, inputs.bias}) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = Tensor();
  }
  return gradients;
}

Tensor go_back(const Tensor& out, const Tensor& seed, const Tensor& x) {
  return backward({out}, {seed}, {x}).input_gradients[0];
}

Tensor go_back_in_halves(const Tensor& out, const Tensor& seed, const Tensor& x) {
  InputHalf half = backward_input({out}, {seed}, {x});
  half.weight_half.run();
  return half.input_gradients[0];
}

TEST(Linear, AddsUpWhatMicroBatchesGive) {
  const Inputs inputs = make_inputs({2, 4, 3});
  const Tensors expected = train(inputs, right, go_back);
  const Tensors whole = train(inputs, ours, go_back);
  const Tensors halves = train(inputs, ours, go_back_in_halves);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_near(whole[i], expected[i]);
    EXPECT_TRUE(halves[i].equal(whole[i])) << i;
  }
}

TEST(Linear, MakesNoGradientOfItsOwnWhereThereIsOne) {
  MemoryMeter::install();
  const std::int64_t wide = 512;
  const Inputs inputs = make_inputs({2, wide}, wide);
  const std::int64_t weight_bytes = wide * wide * 8;
  inputs.weight.mutable_grad() = torch::zeros_like(inputs.weight);
  inputs.bias.mutable_grad() = torch::zeros_like(inputs.bias);
  const auto extra = [&](const Tensor& out) {
    const Tensor seed = torch::ones_like(out);
    const MemorySlot slot;
    const MemoryScope scope(slot.number());
    backward({out}, {seed}, {inputs.x});
    return MemoryMeter::stats(slot.number()).peak_bytes;
  };
  EXPECT_GE(extra(right(inputs)), weight_bytes);
  EXPECT_LT(extra(ours(inputs)), weight_bytes / 10);
}

TEST(Linear, LeavesSeparateParametersAndFrozenOnesAlone) {
  const Inputs inputs = make_inputs({4, 3});
  inputs.weight.mutable_grad() = torch::zeros_like(inputs.weight);
  const Tensor seed = torch::ones({4, 5}, torch::kFloat64);
  const auto result = backward({ours(inputs)}, {seed}, {inputs.x}, {inputs.weight});
  EXPECT_EQ(inputs.weight.grad().abs().max().item<double>(), 0);
  expect_near(result.separate_gradients[0],
              torch::autograd::grad({right(inputs)}, {inputs.weight}, {seed})[0]);
  inputs.weight.set_requires_grad(false);
  EXPECT_FALSE(is_own(ours(inputs)));
}

TEST(Linear, HasASecondDerivative) {
  const Inputs inputs = make_inputs({4, 3});
  const auto second = [&](const Tensor& out) {
    const auto first = torch::autograd::grad({out.pow(3).sum()}, inputs.all(), {}, true, true);
    return torch::autograd::grad({first[0].pow(2).sum() + first[1].pow(2).sum()}, inputs.all());
  };
  const auto got = second(ours(inputs));
  const auto expected = second(right(inputs));
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(torch::allclose(got[i], expected[i], 1e-10)) << i;
}

TEST(Linear, NoticesAWeightThatChangedBeforeTheBackward) {
  const Inputs inputs = make_inputs({4, 3});
  const Tensor out = ours(inputs);
  {
    const torch::NoGradGuard no_grad;
    inputs.weight.add_(1);
  }
  EXPECT_THROW(out.sum().backward(), c10::Error);
}

TEST(Linear, IsTorchsElsewhere) {
  const Inputs inputs = make_inputs({4, 3});
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(ours(inputs).requires_grad());
  }
  EXPECT_FALSE(is_own(accumulating_linear(inputs.x[0], inputs.weight, inputs.bias)));  // a vector
  EXPECT_EQ(
      accumulating_linear(torch::ones({0, 3}, torch::kFloat64), inputs.weight, inputs.bias).sizes(),
      (Sizes{0, 5}));
  EXPECT_THROW(accumulating_linear(torch::ones({4, 2}, torch::kFloat64), inputs.weight),
               c10::Error);
  const AutocastScope autocast(torch::kCPU, Precision::kBf16);
  const Tensor weight = inputs.weight.detach().to(torch::kFloat).requires_grad_();
  const Tensor out = accumulating_linear(torch::ones({4, 3}), weight);
  EXPECT_FALSE(is_own(out));
  EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
}

}  // namespace
}  // namespace pipewright
