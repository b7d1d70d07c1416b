// accumulating_linear() against torch::linear().

#include "pipewright/nn/linear.h"

#include <gtest/gtest.h>

#include "pipewright/memory/meter.h"
#include "pipewright/nn/autocast.h"
#include "pipewright/nn/backward.h"
#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/torch/compat.h"

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

/// As a Trainer's segment calls it.
Tensor own_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  const OwnGraphs own;
  return accumulating_linear(x, weight, bias);
}
Tensor ours(const Inputs& i) { return own_linear(i.x, i.weight, i.bias); }
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
  const Tensor out = own_linear(across, inputs.weight);
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
  EXPECT_FALSE(is_own(accumulating_linear(inputs.x, inputs.weight, inputs.bias)));  // no Trainer's
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(ours(inputs).requires_grad());
  }
  EXPECT_FALSE(is_own(own_linear(inputs.x[0], inputs.weight, inputs.bias)));  // a vector
  EXPECT_EQ(own_linear(torch::ones({0, 3}, torch::kFloat64), inputs.weight, inputs.bias).sizes(),
            (Sizes{0, 5}));
  EXPECT_THROW(own_linear(torch::ones({4, 2}, torch::kFloat64), inputs.weight), c10::Error);
  EXPECT_THROW(own_linear(torch::ones({4, 3}), inputs.weight), c10::Error);  // of another type
  const AutocastScope autocast(torch::kCPU, Precision::kBf16);
  const Tensor out = ours(inputs);  // doubles, which autocast leaves alone
  EXPECT_FALSE(is_own(out));
  EXPECT_EQ(out.scalar_type(), torch::kFloat64);
}

/// In 32 bits: x, a weight and a bias that a product under autocast takes.
Inputs single(const torch::Device& device) {
  const Inputs made = make_inputs({2, 64, 48}, 32);
  const auto leaf = [&](const Tensor& t) {
    return t.detach().to(device, torch::kFloat).requires_grad_();
  };
  return {leaf(made.x), leaf(made.weight), leaf(made.bias)};
}

/// Every gradient as far from LibTorch's as 16 bits of them, three times rounded, may be.
void expect_within_16_bits(const torch::Device& device) {
  const AutocastScope autocast(device, Precision::kBf16);
  const Inputs inputs = single(device);
  const Tensor out = ours(inputs);
  EXPECT_TRUE(is_own(out));
  EXPECT_TRUE(out.equal(right(inputs)));
  const Tensors expected = train(inputs, right, go_back);
  const Tensors whole = train(inputs, ours, go_back);
  const Tensors halves = train(inputs, ours, go_back_in_halves);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(whole[i].scalar_type(), torch::kFloat);
    const double scale = expected[i].abs().max().item<double>();
    EXPECT_LT((whole[i] - expected[i]).abs().max().item<double>(), scale / 64) << i;
    EXPECT_TRUE(halves[i].equal(whole[i])) << i;
  }
}

TEST(Linear, TakesWhatAutocastTakes) { expect_within_16_bits(torch::kCPU); }

TEST(Linear, HoldsNoCopyOfTheWeightUnderAutocast) {
  MemoryMeter::install();
  const std::int64_t wide = 512;
  const Tensor x = torch::ones({2, wide}).requires_grad_();
  const Tensor weight = torch::ones({wide, wide}).requires_grad_();
  const Inputs inputs = {x, weight, Tensor()};
  const auto held = [&](Tensor (*forward)(const Inputs&)) {
    const MemorySlot slot;
    const MemoryScope scope(slot.number());
    const AutocastScope autocast(torch::kCPU, Precision::kBf16);
    const Tensor out = forward(inputs);
    return MemoryMeter::stats(slot.number()).live_bytes;
  };
  const std::int64_t copy = wide * wide * 2;
  EXPECT_GE(held(right), copy);
  EXPECT_LT(held(ours), copy / 10);
}

/// Whether LibTorch adds products of 16 bits up in 32.
bool adds_in_32_bits() {
  Tensor sum = torch::zeros({16, 16}, torch::kCUDA);
  const Tensor one = torch::ones({16, 16}, sum.options().dtype(torch::kBFloat16));
  return compat::add_product_in_32_bits(&sum, one, one);
}

TEST(GpuLinear, AddsUpProductsOf16BitsIn32) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  expect_within_16_bits(torch::kCUDA);
  if (!adds_in_32_bits()) return;
  const AutocastScope autocast(torch::kCUDA, Precision::kBf16);
  const Inputs inputs = single(torch::kCUDA);
  inputs.weight.mutable_grad() = torch::zeros_like(inputs.weight);
  for (const double value : {1.0, 1.0 / 256, 1.0 / 256}) {  // bfloat16 has no 1 + 1/256
    const Tensor x = torch::full({1, 48}, value, torch::kCUDA).requires_grad_();
    const Tensor out = own_linear(x, inputs.weight);
    backward({out}, {torch::ones_like(out)}, {x});
  }
  EXPECT_TRUE(inputs.weight.grad().equal(torch::full_like(inputs.weight, 1 + 2.0 / 256)));
}

}  // namespace
}  // namespace pipewright
