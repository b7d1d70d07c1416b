#include "pipewright/train/try_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "pipewright/base/error.h"
#include "pipewright/optim/adam.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Plan plan_of(int micro_batches, int size, std::vector<std::vector<Operation>> operations = {}) {
  Plan plan;
  plan.global_batch = static_cast<std::int64_t>(micro_batches) * size;
  plan.micro_batches = micro_batches;
  plan.micro_batch_size = size;
  plan.sizes = {2};
  plan.operations = std::move(operations);
  return plan;
}

/// Runs out of memory with micro-batches of more rows than `most`.
struct HungryImpl : torch::nn::Module {
  explicit HungryImpl(std::int64_t rows) : most(rows) {}
  torch::Tensor forward(const torch::Tensor& x) const {
    if (x.size(0) > most) throw std::bad_alloc();
    return x * 2;
  }
  std::int64_t most;
};
TORCH_MODULE(Hungry);

std::unique_ptr<Trainer> trainer_of(const Plan& plan, std::int64_t most_rows) {
  Sequence model;
  model.add("fc", torch::nn::Linear(4, 4));
  model.add("hungry", Hungry(most_rows));
  return std::make_unique<Trainer>(std::move(model), mean_squared_error(),
                                   adam(torch::optim::AdamOptions(1e-3)), strategy_of(plan));
}

std::vector<int> sizes_of(const std::vector<Plan>& plans) {
  std::vector<int> sizes;
  for (const Plan& plan : plans) sizes.push_back(plan.micro_batch_size);
  return sizes;
}

TEST(TryPlans, NearlyTheSameIsNotTriedTwice) {
  const std::vector<Operation> some(2);
  std::vector<Plan> plans = {plan_of(1, 40), plan_of(1, 39),         plan_of(1, 41),
                             plan_of(1, 30), plan_of(1, 40, {some}), plan_of(1, 8)};
  EXPECT_THAT(sizes_of(plans_to_try(plans, 9)), ElementsAre(40, 30, 40, 8));
  EXPECT_THAT(sizes_of(plans_to_try(plans, 2)), ElementsAre(40, 30));
  plans[1].schedule = "gpipe";
  plans[2].chunks = 2;
  EXPECT_THAT(sizes_of(plans_to_try(plans, 5)), ElementsAre(40, 39, 41, 30, 40));
  plans.erase(plans.begin() + 4);  // the one that recomputes
  EXPECT_THAT(sizes_of(plans_to_try(plans, 3)), ElementsAre(40, 39, 41));
}

TEST(TryPlans, TheBestOfAnotherKindOfRecomputeIsAmongThem) {
  const std::vector<Operation> some(2);
  const std::vector<Plan> plans = {plan_of(1, 40, {some}), plan_of(1, 30, {some}),
                                   plan_of(1, 20, {some}), plan_of(1, 10, {some}),
                                   plan_of(1, 11),         plan_of(1, 8)};
  EXPECT_THAT(sizes_of(plans_to_try(plans, 4)), ElementsAre(40, 30, 20, 11));
  EXPECT_THAT(sizes_of(plans_to_try(plans, 2)), ElementsAre(40, 30));
  EXPECT_THAT(sizes_of(plans_to_try({plans.begin(), plans.begin() + 4}, 3)),
              ElementsAre(40, 30, 20));
}

TEST(TryPlans, WhatRanIsFirstAndFastestFirst) {
  const Batch batch{.inputs = {torch::randn({16, 4})}, .targets = {torch::randn({16, 4})}};
  const auto trainer = [](const Plan& plan) { return trainer_of(plan, 8); };
  const auto tried = try_plans({plan_of(1, 16), plan_of(2, 8), plan_of(4, 4), plan_of(16, 1)},
                               trainer, batch, {.plans = 3, .warm_up = 1, .steps = 2});
  ASSERT_EQ(tried.size(), 3U);
  EXPECT_EQ(tried[2].plan.micro_batch_size, 16);
  EXPECT_THAT(tried[2].failure, HasSubstr("memory"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(tried[i].failure, "");
    EXPECT_GT(tried[i].step_seconds, 0);
    ASSERT_EQ(tried[i].peak_bytes.size(), 1U);
    EXPECT_GT(tried[i].peak_bytes[0], 0);
  }
  EXPECT_LE(tried[0].step_seconds, tried[1].step_seconds);
}

TEST(TryPlans, OtherErrorsAreNotSwallowed) {
  const Batch batch{.inputs = {torch::randn({2, 4})}, .targets = {torch::randn({2, 3})}};
  const auto trainer = [](const Plan& plan) { return trainer_of(plan, 8); };
  EXPECT_THROW(try_plans({plan_of(1, 2)}, trainer, batch), Error);
  EXPECT_THROW(try_plans({plan_of(1, 2)}, trainer, batch, {.steps = 0}), InvalidArgument);
}

}  // namespace
}  // namespace pipewright
