// Lanes within a trainer: the bits of micro-batches one after the other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/train/trainer.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

struct DropImpl : torch::nn::Module {
  DropImpl() : fc(register_module("fc", torch::nn::Linear(6, 6))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::dropout(torch::tanh(fc(x)), 0.2, is_training());
  }
  torch::nn::Linear fc;
};
TORCH_MODULE(Drop);

Sequence make_model() {
  torch::manual_seed(4);
  Sequence model;
  model.add("first", Drop());
  model.add("second", Drop());
  model.add("last", torch::nn::Linear(6, 2));
  return model;
}

std::unique_ptr<torch::optim::Optimizer> adam(const Parameters& p) {
  return std::make_unique<torch::optim::Adam>(p, 0.01);
}

Batch make_batch(std::int64_t rows, std::uint64_t seed) {
  torch::manual_seed(seed);
  return {.inputs = {torch::randn({rows, 6})}, .targets = {torch::randn({rows, 2})}};
}

Strategy strategy_with(int lanes) {
  Strategy strategy;
  strategy.micro_batches = 4;
  strategy.lanes = lanes;
  strategy.threads_per_rank = 1;
  strategy.clip_norm = 0.5;
  return strategy;
}

/// Weights after steps of different sizes, the losses before them.
Tensors train(Strategy strategy) {
  Trainer trainer(make_model(), mean_squared_error(), adam, std::move(strategy));
  Tensors result;
  for (int i = 0; i < 3; ++i) {
    const StepResult step = trainer.step(make_batch(i == 2 ? 3 : 9, 10 + i));
    result.push_back(torch::tensor({step.loss, step.weight, step.gradient_norm}, torch::kDouble));
  }
  for (const auto& [name, tensor] : trainer.state_dict()) result.push_back(tensor.clone());
  return result;
}

void expect_same(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(torch::equal(actual[i], expected[i])) << i;
}

TEST(TrainerLanes, HaveTheBitsOfOneAfterTheOther) {
  const Tensors expected = train(strategy_with(0));
  for (const int lanes : {1, 2, 3, 4}) expect_same(train(strategy_with(lanes)), expected);
}

TEST(TrainerLanes, MergeGradients) {
  Strategy merged = strategy_with(0);
  merged.merge_steps = 3;
  const Tensors expected = train(merged);
  merged.lanes = 2;
  expect_same(train(merged), expected);
}

TEST(TrainerLanes, TiedWeightsHaveTheGradientOfTheWholeBatch) {
  torch::nn::Linear shared(6, 6);
  shared->to(torch::kDouble);
  Sequence model;
  model.add("first", shared);
  model.add("again", shared);
  Strategy strategy = strategy_with(2);
  strategy.clip_norm = 0;
  Batch batch = make_batch(7, 1);
  batch = {.inputs = {batch.inputs[0].to(torch::kDouble)},
           .targets = {torch::ones({7, 6}, torch::kDouble)}};
  Trainer trainer(model, mean_squared_error(), adam, strategy);
  trainer.gradients(batch);
  const torch::Tensor actual = shared->weight.grad().clone();
  shared->zero_grad();
  (shared(shared(batch.inputs[0])) - batch.targets[0]).pow(2).mean().backward();
  EXPECT_TRUE(torch::allclose(actual, shared->weight.grad(), 1e-10, 1e-12));
}

TEST(TrainerLanes, AreDrawnLaneByLane) {
  Trainer trainer(make_model(), mean_squared_error(), adam, strategy_with(2));
  const StepResult result = trainer.step(make_batch(8, 1));
  ASSERT_EQ(result.timeline.ranks.size(), 2U);
  std::size_t spans = 0;
  for (const auto& lane : result.timeline.ranks) spans += lane.size();
  EXPECT_EQ(spans, 8U);  // F and B of four micro-batches
  EXPECT_GT(result.peak_bytes.at(0), 0);
}

TEST(TrainerLanes, AFailureLeavesTheTrainerUsable) {
  Trainer trainer(make_model(), mean_squared_error(), adam, strategy_with(2));
  Batch bad = make_batch(8, 1);
  bad.inputs[0] = torch::randn({8, 5});
  EXPECT_THROW(trainer.step(bad), StageError);
  EXPECT_TRUE(trainer.step(make_batch(8, 1)).updated);
}

TEST(TrainerLanes, RefuseWhatTheyCannotDo) {
  const auto words = [](const std::function<void(Strategy*)>& change) {
    Strategy strategy = strategy_with(2);
    change(&strategy);
    return refusal([&] { Trainer(make_model(), mean_squared_error(), adam, strategy); });
  };
  EXPECT_THAT(words([](Strategy* s) { s->ranks = 2; }),
              HasSubstr("lanes = 2 beside ranks = 2, chunks = 0, replicas = 1"));
  EXPECT_THAT(words([](Strategy* s) { s->lanes = 5; }), HasSubstr("5 lanes for 4 micro-batches"));
  EXPECT_THAT(words([](Strategy* s) { s->lanes = -1; }), HasSubstr("lanes = -1"));
  EXPECT_THAT(words([](Strategy* s) { s->recompute = RecomputeMode::kAll; }),
              HasSubstr("lanes with recompute"));
  Sequence with_norm;
  with_norm.add("norm", torch::nn::BatchNorm1d(6));
  with_norm.add("last", torch::nn::Linear(6, 2));
  EXPECT_THAT(refusal([&] { Trainer(with_norm, mean_squared_error(), adam, strategy_with(2)); }),
              HasSubstr("'norm' is a batch norm in training"));
}

}  // namespace
}  // namespace pipewright
