#include "pipewright/nn/backward.h"

#include <gtest/gtest.h>

#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/memory/meter.h"
#include "tests/nn/segments.h"

namespace pipewright {
namespace {

using testing_nn::Kind;
using testing_nn::Segment;
using torch::Tensor;

Tensors gradients_for(const Tensors& outputs) {
  Tensors gradients;
  for (const Tensor& output : outputs) {
    gradients.push_back(output.is_floating_point() ? torch::randn_like(output.detach()) : Tensor());
  }
  return gradients;
}

struct Pass {
  Tensors inputs, outputs, output_gradients;
};

/// The same numbers for the same segment and micro-batch.
Pass forward(const Segment& segment, int micro_batch) {
  torch::manual_seed(100 + micro_batch);
  Pass pass;
  for (const Tensor& input : segment.inputs) {
    const bool real = input.is_floating_point();
    pass.inputs.push_back(real ? (input * (1 + micro_batch)).requires_grad_() : input);
  }
  pass.outputs = segment.forward(pass.inputs);
  pass.output_gradients = gradients_for(pass.outputs);
  return pass;
}

Tensors take_gradients(const Tensors& tensors) {
  Tensors gradients;
  for (Tensor tensor : tensors) {
    gradients.push_back(tensor.grad());
    tensor.mutable_grad() = Tensor();
  }
  return gradients;
}

/// LibTorch's own backward: the gradients of the inputs.
Tensors reference(const Pass& pass) {
  Tensors outputs, gradients;
  for (size_t i = 0; i < pass.outputs.size(); ++i) {
    if (!pass.outputs[i].requires_grad() || !pass.output_gradients[i].defined()) continue;
    outputs.push_back(pass.outputs[i]);
    gradients.push_back(pass.output_gradients[i]);
  }
  if (!outputs.empty()) torch::autograd::backward(outputs, gradients);
  return take_gradients(pass.inputs);
}

void expect_same_bits(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << "tensor " << i;
    const bool same = !actual[i].defined() || torch::equal(actual[i], expected[i]);
    EXPECT_TRUE(same) << "tensor " << i;
  }
}

void expect_no_gradients(const Tensors& tensors) {
  for (const Tensor& tensor : tensors) EXPECT_FALSE(tensor.grad().defined());
}

class Backward : public ::testing::TestWithParam<std::tuple<Kind, torch::Dtype>> {
 protected:
  void SetUp() override {
    torch::manual_seed(1);
    segment_ = std::get<0>(GetParam()).make(std::get<1>(GetParam()));
    for (int m = 0; m < kMicroBatches; ++m) {
      expected_inputs_.push_back(reference(forward(segment_, m)));
    }
    expected_ = take_gradients(segment_.parameters);
  }

  static constexpr int kMicroBatches = 3;
  Segment segment_;
  std::vector<Tensors> expected_inputs_;
  Tensors expected_;
};

TEST_P(Backward, WholeIsLibTorchs) {
  for (int m = 0; m < kMicroBatches; ++m) {
    const Pass pass = forward(segment_, m);
    const auto result = backward(pass.outputs, pass.output_gradients, pass.inputs);
    expect_same_bits(result.input_gradients, expected_inputs_[m]);
    expect_no_gradients(pass.inputs);
    EXPECT_TRUE(result.separate_gradients.empty());
  }
  expect_same_bits(take_gradients(segment_.parameters), expected_);
}

TEST_P(Backward, HalvesAreTheWhole) {
  std::vector<WeightHalf> halves;
  const std::string kind = std::get<0>(GetParam()).name;
  const bool splits = kind != "custom" && kind != "class_token";
  for (int m = 0; m < kMicroBatches; ++m) {
    const Pass pass = forward(segment_, m);
    InputHalf half = backward_input(pass.outputs, pass.output_gradients, pass.inputs);
    expect_same_bits(half.input_gradients, expected_inputs_[m]);
    expect_no_gradients(pass.inputs);
    if (splits) expect_no_gradients(segment_.parameters);
    halves.push_back(std::move(half.weight_half));
  }
  for (WeightHalf& half : halves) EXPECT_TRUE(half.run().empty());
  expect_same_bits(take_gradients(segment_.parameters), expected_);
}

TEST_P(Backward, SeparateGradientsAreReturned) {
  const Tensors& separate = segment_.parameters;
  const Pass pass = forward(segment_, 0);
  reference(forward(segment_, 0));
  const Tensors expected = take_gradients(separate);
  const auto result = backward(pass.outputs, pass.output_gradients, pass.inputs, separate);
  expect_same_bits(result.input_gradients, expected_inputs_[0]);
  expect_same_bits(result.separate_gradients, expected);
  expect_no_gradients(separate);

  const Pass again = forward(segment_, 0);
  InputHalf half = backward_input(again.outputs, again.output_gradients, again.inputs, separate);
  expect_same_bits(half.input_gradients, expected_inputs_[0]);
  expect_same_bits(half.weight_half.run(), expected);
  expect_no_gradients(separate);
}

TEST_P(Backward, SomeOutputsWithoutGradient) {
  for (size_t missing = 0; missing < forward(segment_, 0).outputs.size(); ++missing) {
    const auto pass_without = [&] {
      Pass pass = forward(segment_, 0);
      pass.output_gradients[missing] = Tensor();
      return pass;
    };
    const Tensors inputs = reference(pass_without());
    const Tensors expected = take_gradients(segment_.parameters);
    const Pass pass = pass_without();
    expect_same_bits(backward(pass.outputs, pass.output_gradients, pass.inputs).input_gradients,
                     inputs);
    expect_same_bits(take_gradients(segment_.parameters), expected);
    const Pass again = pass_without();
    InputHalf half = backward_input(again.outputs, again.output_gradients, again.inputs);
    half.weight_half.run();
    expect_same_bits(half.input_gradients, inputs);
    expect_same_bits(take_gradients(segment_.parameters), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Backward,
                         ::testing::Combine(::testing::ValuesIn(testing_nn::all_kinds()),
                                            ::testing::Values(torch::kFloat, torch::kDouble)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param).name +
                                  (std::get<1>(tested.param) == torch::kFloat ? "32" : "64");
                         });

TEST(BackwardWhole, NothingToDo) {
  const Tensor x = torch::randn({2}).requires_grad_();
  const auto result = backward({x * 2, x.detach()}, {Tensor(), torch::ones({2})}, {x}, {x});
  EXPECT_FALSE(result.input_gradients.at(0).defined());
  EXPECT_FALSE(result.separate_gradients.at(0).defined());
  InputHalf half = backward_input({x * 2}, {Tensor()}, {x}, {x});
  EXPECT_FALSE(half.input_gradients.at(0).defined());
  EXPECT_FALSE(half.weight_half.run().at(0).defined());
}

TEST(BackwardWhole, InputGradientsKeepTheirStrides) {
  const Tensor x = torch::randn({4, 3}).t().requires_grad_();  // (3, 4), strides (1, 3)
  const auto run = [&] { return Tensors{x.contiguous().matmul(torch::ones({4, 2}))}; };
  const Tensor gradient = torch::randn({3, 2});
  const Tensor expected = torch::autograd::grad(run(), {x}, {gradient})[0];
  ASSERT_NE(expected.strides(), x.strides());
  EXPECT_EQ(backward(run(), {gradient}, {x}).input_gradients[0].strides(), expected.strides());
  EXPECT_EQ(backward_input(run(), {gradient}, {x}).input_gradients[0].strides(),
            expected.strides());
}

TEST(BackwardWhole, WrongShapesAreOurMistake) {
  const Tensor x = torch::randn({2}).requires_grad_();
  EXPECT_THROW(backward({x * 2}, {torch::ones({3})}, {x}), InternalError);
  EXPECT_THROW(backward({x * 2}, {}, {x}), InternalError);
  EXPECT_THROW(backward({x * 2}, {torch::ones({2})}, {x * 1}), InternalError);
}

TEST(BackwardWhole, ASecondTimeThrows) {
  const Tensor x = torch::randn({2}).requires_grad_();
  const Tensors outputs{(x * x).exp()};
  backward(outputs, {torch::ones({2})}, {x});
  EXPECT_THROW(backward(outputs, {torch::ones({2})}, {x}), std::exception);
}

TEST(BackwardSplit, CustomFunctionsRunOnce) {
  torch::manual_seed(1);
  const Segment segment = testing_nn::custom(torch::kFloat);
  const Pass pass = forward(segment, 0);
  testing_nn::ScaleAndShift::num_backwards = 0;
  InputHalf half = backward_input(pass.outputs, pass.output_gradients, pass.inputs);
  half.weight_half.run();
  EXPECT_EQ(testing_nn::ScaleAndShift::num_backwards, 1);
}

TEST(BackwardSplit, HooksRunOnce) {
  torch::nn::Linear linear(4, 4);
  const auto forward_hooked = [&](const Tensor& x, int& calls) {
    Tensor y = linear(x);
    y.register_hook([&calls](const Tensor& gradient) { return ++calls, gradient * 3; });
    return Tensors{y.tanh()};
  };
  const Tensor x = torch::randn({2, 4}).requires_grad_();
  int calls = 0;
  torch::autograd::backward(forward_hooked(x, calls), {torch::ones({2, 4})});
  const Tensors expected = take_gradients(linear->parameters());
  calls = 0;
  InputHalf half = backward_input(forward_hooked(x, calls), {torch::ones({2, 4})}, {x});
  half.weight_half.run();
  EXPECT_EQ(calls, 1);
  expect_same_bits(take_gradients(linear->parameters()), expected);
}

TEST(BackwardSplit, AWeightHalfRunsOnce) {
  const Tensor x = torch::randn({2}).requires_grad_();
  InputHalf half = backward_input({x * 2}, {torch::ones({2})}, {x});
  half.weight_half.run();
  EXPECT_THROW(half.weight_half.run(), InternalError);
}

/// Activations of x's size: one that feeds a weight, then `num_chain` that feed none.
Tensors long_chain(const Tensor& x, const Tensor& weight, int num_chain) {
  Tensor y = x.tanh() * weight;
  for (int i = 0; i < num_chain; ++i) y = y.tanh();
  return {y};
}

TEST(BackwardSplit, TheInputHalfFreesWhatItAloneNeeds) {
  constexpr std::int64_t kBytes = 1 << 20;
  constexpr int kChain = 20;
  constexpr int kSlot = 7;
  MemoryMeter::install();
  const MemoryScope scope(kSlot);
  const Tensor x = torch::randn({kBytes / 4}).requires_grad_();
  const Tensor weight = torch::randn({}).requires_grad_();
  const Tensor gradient = torch::ones({kBytes / 4});
  const auto live = [] { return MemoryMeter::stats(kSlot).live_bytes; };
  const std::int64_t before = live();
  const Tensors outputs = long_chain(x, weight, kChain);
  const std::int64_t forward_bytes = live() - before;
  EXPECT_EQ(forward_bytes, (kChain + 1) * kBytes);  // the product's own value is not saved
  MemoryMeter::reset_peak(kSlot);
  InputHalf half = backward_input(outputs, {gradient}, {x});
  // Freed on the way, not at the end: a few gradients come while the activations go.
  EXPECT_LE(MemoryMeter::stats(kSlot).peak_bytes, before + forward_bytes + 3 * kBytes);
  // Held: the output, the input's gradient, the activation that feeds the weight, its gradient.
  EXPECT_LE(live() - before, 4 * kBytes);
  EXPECT_FALSE(weight.grad().defined());
  half.weight_half.run();
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_LE(live() - before, 2 * kBytes + 64);
  MemoryMeter::uninstall();
}

TEST(BackwardThreads, SegmentsAtTheSameTimeShareATiedWeight) {
  constexpr int kThreads = 4;
  torch::manual_seed(1);
  const Tensor tied = torch::randn({16, 16}).requires_grad_();
  const Tensor x = torch::randn({8, 16});
  const auto run = [&](int scale) { return x.mul(scale).matmul(tied).tanh().matmul(tied).sum(); };
  Tensors expected, actual(kThreads);
  for (int t = 0; t < kThreads; ++t) expected.push_back(torch::autograd::grad({run(t)}, {tied})[0]);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        actual[t] = backward({run(t)}, {torch::ones({})}, {}, {tied}).separate_gradients[0];
        InputHalf half = backward_input({run(t)}, {torch::ones({})}, {}, {tied});
        EXPECT_TRUE(torch::equal(half.weight_half.run()[0], actual[t]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_same_bits(actual, expected);
  EXPECT_FALSE(tied.grad().defined());
}

}  // namespace
}  // namespace pipewright
