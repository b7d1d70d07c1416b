// plan_stage(): recompute plans of a stage that holds several micro-batches.

#include "pipewright/recompute/stage_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "pipewright/recompute/modes.h"

namespace pipewright {
namespace {

/// Blocks of two layers, a heavy one and a light one, with byte counts that have no common divisor.
StageChain blocks(std::mt19937& random, int count) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  StageChain stage;
  const int wide = draw(400000, 600000) * 2 + 1;
  for (int i = 0; i < count; ++i) {
    stage.chain.layers.push_back({.forward = 5,
                                  .backward = 10,
                                  .output_bytes = wide,
                                  .saved_bytes = 3 * wide + draw(0, 1000),
                                  .forward_temp_bytes = draw(0, 1000),
                                  .backward_temp_bytes = wide + draw(0, 1000)});
    stage.chain.layers.push_back({.forward = 1,
                                  .backward = 1,
                                  .output_bytes = wide,
                                  .saved_bytes = wide + draw(0, 1000),
                                  .backward_temp_bytes = wide});
  }
  stage.input_bytes = wide;
  return stage;
}

/// What a stage takes that runs these operations, with so many micro-batches in flight.
std::int64_t bytes_of(const StageChain& stage, const OperationsCost& cost) {
  return cost.peak_bytes + (stage.in_flight - 1) * cost.forward.held_bytes +
         stage.in_flight * (stage.input_bytes + stage.skip_bytes);
}

TEST(PlanStage, IsNeverSlowerThanEveryNOrSqrtWithTheirBytes) {
  std::mt19937 random(7);
  int faster = 0;
  for (int round = 0; round < 12; ++round) {
    StageChain stage = blocks(random, 8 + round);
    const int layers = stage.chain.size();
    stage.in_flight = 1 + round % 3;
    std::vector<std::vector<int>> ways = {sqrt_checkpoints(layers)};
    for (int n = 1; n <= layers; n += 1 + n / 4) ways.push_back(every(layers, n));
    for (const auto& checkpoints : ways) {
      for (const bool save_last : {false, true}) {
        const OperationsCost plain =
            run_operations(stage.chain, keep_checkpoints(layers, checkpoints, save_last));
        const std::int64_t budget = bytes_of(stage, plain);
        const StageRecompute planned = plan_stage(stage, budget, /*most_units=*/60);
        ASSERT_TRUE(planned.feasible);
        EXPECT_LE(planned.peak_bytes, budget);
        EXPECT_LE(planned.plan.cost.time, plain.time + 1e-9)
            << layers << " layers, " << checkpoints.size() << " checkpoints";
        faster += planned.plan.cost.time < plain.time ? 1 : 0;
      }
    }
  }
  EXPECT_GT(faster, 50);
}

TEST(PlanStage, SaysTheLeastThatWouldDo) {
  std::mt19937 random(3);
  const StageChain stage = blocks(random, 5);
  const StageRecompute refused = plan_stage(stage, 1, 60);
  ASSERT_FALSE(refused.feasible);
  EXPECT_FALSE(plan_stage(stage, refused.least_budget_bytes - 1, 60).feasible);
  EXPECT_TRUE(plan_stage(stage, refused.least_budget_bytes, 60).feasible);
}

}  // namespace
}  // namespace pipewright
