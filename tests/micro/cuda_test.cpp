// Lanes on a GPU: streams, and captured graphs. Skipped where there is none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/micro/auto_micro_batch.h"
#include "tests/micro/click_model.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

Batch make_batch(std::int64_t rows, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto ids = torch::randint(kValues, {rows, kFields}, torch::kLong);
  const auto numbers = torch::randn({rows, kNumbers}, torch::kDouble);
  const auto targets = torch::randn({rows, 1}, torch::kDouble);
  return {.inputs = {ids.to(torch::kCUDA), numbers.to(torch::kCUDA)},
          .targets = {targets.to(torch::kCUDA)}};
}

torch::Tensor mean_squares(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

void expect_gradients(AutoMicroBatch* step, ClickModel model, ClickModel plain) {
  for (const std::int64_t rows : {8, 8, 5, 8}) {
    const Batch batch = make_batch(rows, static_cast<std::uint64_t>(rows));
    model->zero_grad();
    plain->zero_grad();
    const torch::Tensor loss = step->backward(batch).loss;
    const torch::Tensor expected =
        mean_squares(plain->forward(batch.inputs[0], batch.inputs[1]), batch.targets[0]);
    expected.backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-10);
    for (const auto& item : model->named_parameters()) {
      torch::Tensor actual = item.value().grad();
      torch::Tensor wanted = plain->named_parameters()[item.key()].grad();
      if (actual.is_sparse()) actual = actual.to_dense();
      if (wanted.is_sparse()) wanted = wanted.to_dense();
      EXPECT_TRUE(torch::allclose(actual, wanted, 1e-10, 1e-12)) << item.key() << rows;
    }
  }
}

class LanesOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
  static ClickModel model(const ClickModelOptions& options = {}) {
    ClickModel made = make_click_model(options);
    made->to(torch::kCUDA);
    return made;
  }
};

TEST_F(LanesOnGpu, HaveTheGradientsOfTheWholeBatch) {
  for (const bool sparse : {false, true}) {
    const ClickModel made = model({.sparse = sparse});
    AutoMicroBatch step(made, mean_squares, {.num = 4, .lanes = 2});
    expect_gradients(&step, made, model({.sparse = sparse}));
  }
}

TEST_F(LanesOnGpu, CapturedTheyHaveThemToo) {
  const ClickModel made = model();
  AutoMicroBatch step(made, mean_squares, {.num = 4, .lanes = 2, .capture = true});
  expect_gradients(&step, made, model());
}

TEST_F(LanesOnGpu, WhatCannotBeCapturedIsRefused) {
  AutoMicroBatch sparse(model({.sparse = true}), mean_squares,
                        {.num = 2, .lanes = 2, .capture = true});
  EXPECT_THAT(refusal([&] { sparse.backward(make_batch(8, 1)); }),
              HasSubstr("cannot capture sparse gradients"));
  AutoMicroBatch drawing(model({.dropout = 0.5}), mean_squares,
                         {.num = 2, .lanes = 2, .capture = true});
  EXPECT_THAT(refusal([&] { drawing.backward(make_batch(8, 1)); }),
              HasSubstr("the model draws at random"));
}

TEST(Captured, NeedsCuda) {
  AutoMicroBatch step(make_click_model({}), mean_squares, {.num = 2, .lanes = 2, .capture = true});
  const Batch batch{.inputs = {torch::zeros({4, kFields}, torch::kLong),
                               torch::zeros({4, kNumbers}, torch::kDouble)},
                    .targets = {torch::ones({4, 1}, torch::kDouble)}};
  EXPECT_THAT(refusal([&] { step.backward(batch); }), HasSubstr("captured graphs are CUDA's"));
}

}  // namespace
}  // namespace pipewright
