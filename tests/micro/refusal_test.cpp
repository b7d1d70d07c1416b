// What mixes samples, or cannot run beside itself, is refused with the reason; what may look like
// it is not.

#include "tests/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/micro/auto_micro_batch.h"
#include "tests/micro/click_model.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Batch make_batch(std::int64_t rows) {
  torch::manual_seed(5);
  return {.inputs = {torch::randn({rows, 4})}, .targets = {torch::randn({rows, 2})}};
}

torch::Tensor mean_squares(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

/// A layer and something after it.
struct NetImpl : torch::nn::Module {
  using After = std::function<torch::Tensor(NetImpl&, const torch::Tensor&)>;
  explicit NetImpl(After what) : after(std::move(what)) {
    fc = register_module("fc", torch::nn::Linear(4, 2));
    count = register_buffer("count", torch::zeros({1}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return after(*this, fc(x)); }
  After after;
  torch::nn::Linear fc{nullptr};
  torch::Tensor count;
};
TORCH_MODULE(Net);

template <typename Model>
std::string refusal_of(Model model, AutoMicroBatchOptions options = {.num = 2, .lanes = 2}) {
  AutoMicroBatch step(std::move(model), mean_squares, options);
  return refusal([&] { step.backward(make_batch(8)); });
}

TEST(AutoMicroBatchRefuses, AStatisticOfTheBatch) {
  const Net net([](NetImpl&, const torch::Tensor& x) { return x - x.mean(0); });
  EXPECT_THAT(refusal_of(net),
              AllOf(HasSubstr("[auto_micro_batch] micro-batches would change the gradients"),
                    HasSubstr("use num = 1, or change it")));
}

TEST(AutoMicroBatchRefuses, InBatchNegatives) {
  const Net net([](NetImpl&, const torch::Tensor& x) {
    return x * torch::softmax(torch::matmul(x, x.t()), 1).sum(0, true).t();
  });
  EXPECT_THAT(refusal_of(net), HasSubstr("looks at several samples at once"));
}

TEST(AutoMicroBatchRefuses, BatchNorm) {
  torch::nn::Sequential net(torch::nn::Linear(4, 2), torch::nn::BatchNorm1d(2));
  EXPECT_THAT(refusal_of(net), AllOf(HasSubstr("'model.1' is a batch norm in training"),
                                     HasSubstr("use another norm")));
  net[1]->as<torch::nn::BatchNorm1d>()->eval();
  AutoMicroBatch step(net, mean_squares, {.num = 2, .lanes = 2});
  step.backward(make_batch(8));
}

TEST(AutoMicroBatchRefuses, ABufferThatIsWritten) {
  const Net net([](NetImpl& self, const torch::Tensor& x) {
    const torch::NoGradGuard no_grad;
    self.count.add_(1);
    return x;
  });
  EXPECT_THAT(refusal_of(net), HasSubstr("the forward writes to the buffer 'model.count'"));
  EXPECT_EQ(net->count.item<float>(), 0);
}

TEST(AutoMicroBatchRefuses, ASumTakenForAMean) {
  const Net net([](NetImpl&, const torch::Tensor& x) { return x; });
  AutoMicroBatch step(net,
                      [](const torch::Tensor& output, const torch::Tensor& target) {
                        return (output - target).pow(2).sum();
                      },
                      {.num = 2, .lanes = 2});
  EXPECT_THAT(refusal([&] { step.backward(make_batch(8)); }),
              HasSubstr("if the loss is a sum, set .reduction = Reduction::kSum"));
}

TEST(AutoMicroBatchRefuses, WrongOptions) {
  const auto words = [](AutoMicroBatchOptions options) {
    return refusal([&] { AutoMicroBatch(torch::nn::Linear(4, 2), mean_squares, options); });
  };
  EXPECT_THAT(words({.num = -1}), HasSubstr("num = -1; use 1 or more"));
  EXPECT_THAT(words({.num = 2, .lanes = 3}), HasSubstr("3 lanes for num = 2; use 2 or fewer"));
  EXPECT_THAT(words({.lanes = -1}), HasSubstr("lanes = -1"));
  EXPECT_THAT(words({.threads = -2}), HasSubstr("threads = -2"));
}

TEST(AutoMicroBatchRefuses, BatchesThatMakeNoSense) {
  AutoMicroBatch step(torch::nn::Linear(4, 2), mean_squares, {.num = 2, .lanes = 2});
  EXPECT_THAT(refusal([&] { step.backward(Batch{}); }), HasSubstr("the batch has no inputs"));
  EXPECT_THAT(refusal([&] {
                step.backward(Batch{.inputs = {torch::ones({2, 4})}});
              }),
              HasSubstr("the batch has no targets"));
  EXPECT_THAT(refusal([&] { step.backward(std::vector<Batch>()); }),
              HasSubstr("there are no micro-batches"));
}

TEST(AutoMicroBatchTakes, DropoutWhichDiffersByMicroBatch) {
  const Net net([](NetImpl& self, const torch::Tensor& x) {
    return torch::dropout(x, 0.5, self.is_training());
  });
  AutoMicroBatch step(net, mean_squares, {.num = 2, .lanes = 2});
  step.backward(make_batch(8));
  EXPECT_TRUE(net->is_training());
}

TEST(AutoMicroBatchTakes, WhatIsRefusedWhereItIsNotSplit) {
  const Net net([](NetImpl&, const torch::Tensor& x) { return x - x.mean(0); });
  AutoMicroBatch step(net, mean_squares, {.num = 1});
  step.backward(make_batch(8));
  EXPECT_TRUE(net->fc->weight.grad().defined());
}

}  // namespace
}  // namespace pipewright
