// Promise 5: what a rank holds is bounded as the schedule says, is charged to it, and is back where
// it was after a step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/memory/meter.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

constexpr int kColumns = 256;
constexpr int kRowsOfMicroBatch = 64;
constexpr std::int64_t kTensor = kRowsOfMicroBatch * kColumns * 4;  // bytes of one activation

/// Tanh keeps its output for the backward, and nothing else: a layer of known activation bytes and
/// hardly a parameter.
Sequence tanh_chain(int layers) {
  Sequence model;
  model.add("scale", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kColumns})));
  for (int i = 0; i < layers; ++i) model.add("tanh" + std::to_string(i), torch::nn::Tanh());
  return model;
}

Batch rows_of_noise(int micro_batches) {
  const auto x = torch::randn({micro_batches * kRowsOfMicroBatch, kColumns});
  return {.inputs = {x}, .targets = {torch::zeros_like(x)}};
}

/// Peak bytes by rank of a step, over what is held between steps.
std::vector<std::int64_t> peaks(const Strategy& strategy, int layers) {
  Strategy with_sizes = strategy;
  with_sizes.sizes.assign(static_cast<std::size_t>(strategy.ranks), layers / strategy.ranks);
  Trainer trainer(tanh_chain(layers - 1), mean_squared_error(), sgd(0.01, 0), with_sizes);
  trainer.step(rows_of_noise(strategy.micro_batches));
  return trainer.step(rows_of_noise(strategy.micro_batches)).peak_bytes;
}

/// A micro-batch at a stage of 32 layers holds 32 tensors, give or take one that is another rank's
/// and one of the loss's; so much that one micro-batch more or less would be seen.
TEST(Memory, EveryRankHoldsAsManyMicroBatchesAsTheFormulasSay) {
  constexpr int kLayersOfStage = 32;
  constexpr int kMicroBatches = 8;
  const auto expect_held = [](std::int64_t bytes, int micro_batches) {
    const double tensors = static_cast<double>(bytes) / kTensor;
    EXPECT_GE(tensors, micro_batches * (kLayersOfStage - 2));
    EXPECT_LE(tensors, micro_batches * (kLayersOfStage + 2) + 6);  // and what is in work
  };
  for (const int ranks : {2, 4}) {
    const int layers = ranks * kLayersOfStage;
    const auto gpipe = peaks(strategy_of(ranks, kMicroBatches, "gpipe"), layers);
    const auto one_f_one_b = peaks(strategy_of(ranks, kMicroBatches, "1f1b"), layers);
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks);
      const auto r = static_cast<std::size_t>(rank);
      expect_held(gpipe[r], kMicroBatches);
      expect_held(one_f_one_b[r], std::min(ranks - rank, kMicroBatches));
      EXPECT_LT(one_f_one_b[r], gpipe[r]);
    }
  }
}

TEST(Memory, RecomputeKeepsTheBoundariesAlone) {
  constexpr int kLayers = 16;
  constexpr int kMicroBatches = 8;
  Strategy strategy = strategy_of(2, kMicroBatches, "gpipe");
  strategy.recompute = RecomputeMode::kAll;
  const auto all = peaks(strategy, kLayers);
  for (int rank = 0; rank < 2; ++rank) {
    const std::int64_t held = kLayers / 2 * kTensor;
    EXPECT_LE(all[static_cast<std::size_t>(rank)], kMicroBatches * kTensor + held + 6 * kTensor);
  }
}

TEST(Memory, CheckpointsHoldTheirInputsAndOneBlock) {
  constexpr int kLayers = 64;
  constexpr int kMicroBatches = 8;
  Strategy strategy = strategy_of(2, kMicroBatches, "gpipe");
  strategy.recompute = RecomputeMode::kEvery;
  strategy.recompute_every = 8;
  // Four inputs a micro-batch on each of two stages of 32 layers, a block of eight at work.
  for (const std::int64_t bytes : peaks(strategy, kLayers)) {
    EXPECT_GE(bytes, kMicroBatches * 3 * kTensor);
    EXPECT_LE(bytes, (kMicroBatches * 4 + 8 + 6) * kTensor);
  }
  strategy.schedule = "1f1b";
  const auto one_f_one_b = peaks(strategy, kLayers);
  EXPECT_LE(one_f_one_b[0], (2 * 4 + 8 + 6) * kTensor);
  EXPECT_LE(one_f_one_b[1], (1 * 4 + 8 + 6) * kTensor);
}

/// The bytes charged to anybody: the trainer's slots and the caller.
std::int64_t live_bytes() {
  std::int64_t sum = 0;
  for (int slot = MemoryMeter::kOutside; slot < 64; ++slot)
    sum += MemoryMeter::stats(slot).live_bytes;
  return sum;
}

class LiveBytes : public testing::TestWithParam<std::string> {};

TEST_P(LiveBytes, AreBackWhereTheyWereAfterEveryStep) {
  const Features f{.skips = true, .tied = true, .batch_norm = true, .dropout = true};
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (const auto recompute : kRecomputeModes) {
      SCOPED_TRACE(testing::Message() << "K=" << ranks << " R=" << static_cast<int>(recompute));
      Strategy strategy = strategy_of(ranks, 4, GetParam());
      strategy.recompute = recompute;
      Trainer trainer(make_model(f), cross_entropy(), adam(), strategy);
      const Batch batch = make_batch(11, 0, f);
      trainer.step(batch);  // the optimizer's state is made
      const std::int64_t before = live_bytes();
      for (int step = 0; step < 3; ++step) {
        EXPECT_GT(trainer.step(batch).peak_bytes[0], 0);
        EXPECT_EQ(live_bytes(), before);
      }
      trainer.evaluate(batch);
      trainer.predict(batch.inputs);
      EXPECT_EQ(live_bytes(), before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LiveBytes,
                         testing::Values("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1",
                                         "zb-h2", "zb-v"),
                         name_of_schedule<testing::TestParamInfo<std::string>>);

TEST(Memory, NothingLeaksOverTwoHundredSteps) {
  const Features f{.skips = true, .tied = true, .batch_norm = true, .dropout = true};
  Strategy strategy = strategy_of(2, 4, "zb-h1");
  strategy.recompute = RecomputeMode::kExceptLast;
  Trainer trainer(make_model(f), cross_entropy(), adam(), strategy);
  trainer.step(make_batch(11, 0, f));
  const std::int64_t before = live_bytes();
  std::vector<std::int64_t> first;
  for (int step = 0; step < 200; ++step) {
    const StepResult result = trainer.step(make_batch(11, step, f));
    if (first.empty()) first = result.stage_peak_bytes;
    // Which of two ranks is ahead differs from step to step, by a message at most.
    EXPECT_LE(result.stage_peak_bytes[0], first[0] + (1 << 12));
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST(Memory, TheParametersCountWhereTheyAre) {
  const auto peaks_of = [](bool model_is_older) {
    if (model_is_older) MemoryMeter::uninstall();
    Sequence model;
    model.add("wide", torch::nn::Linear(1000, 1000)).add("narrow", torch::nn::Linear(1000, 10));
    const auto x = torch::randn({4, 1000});
    Trainer trainer(model, cross_entropy(), sgd(0.1, 0), strategy_of(2, 2));
    return trainer.step({{x}, {torch::zeros({4}, torch::kLong)}}).peak_bytes;
  };
  for (const bool older : {false, true}) {
    const auto bytes = peaks_of(older);
    ASSERT_EQ(bytes.size(), 2U);
    EXPECT_GE(bytes[0], 2 * 4 * 1000 * 1001);  // weights and their gradients
    // While the second micro-batch's are added, they are there twice.
    EXPECT_LT(bytes[0], 3 * 4 * 1000 * 1001 + (1 << 16));
    EXPECT_GE(bytes[1], 2 * 4 * 10 * 1001);
    EXPECT_LT(bytes[1], 4 * 1000 * 1001);
  }
}

TEST(Memory, TheTimelineTellsWhatEachRankHeld) {
  Trainer trainer(tanh_chain(7), mean_squared_error(), sgd(0.01, 0), strategy_of(2, 4));
  const StepResult result = trainer.step(rows_of_noise(4));
  ASSERT_EQ(result.timeline.memory.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto& points = result.timeline.memory[rank];
    ASSERT_EQ(points.size(), result.timeline.ranks[rank].size());
    double most = 0;
    for (const MemoryPoint& point : points) most = std::max(most, point.bytes);
    EXPECT_GT(most, kTensor);
    EXPECT_LE(most, static_cast<double>(result.peak_bytes[rank]));
  }
}

}  // namespace
}  // namespace pipewright
