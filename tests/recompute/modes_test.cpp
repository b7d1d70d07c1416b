#include "pipewright/recompute/modes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "pipewright/recompute/optimal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;

Chain equal_chain(int layers) {
  Chain chain;
  chain.layers.assign(static_cast<std::size_t>(layers), {1, 2, 10, 50, 0, 10});
  return chain;
}

TEST(RecomputeModes, Checkpoints) {
  EXPECT_THAT(every(7, 3), ElementsAre(1, 4, 7));
  EXPECT_THAT(every(2, 5), ElementsAre(1));
  EXPECT_THAT(sqrt_checkpoints(9), ElementsAre(1, 4, 7));
  EXPECT_THAT(sqrt_checkpoints(1), ElementsAre(1));
}

TEST(RecomputeModes, EachLayerRunsAgainOnceAtMost) {
  for (int layers = 1; layers <= 30; ++layers) {
    const Chain chain = equal_chain(layers);
    EXPECT_EQ(run_operations(chain, save_everything(layers)).time, 3 * layers);
    for (int n = 1; n <= layers; ++n) {
      for (const bool save_last : {false, true}) {
        const auto checkpoints = every(layers, n);
        const int again = save_last ? checkpoints.back() - 1 : layers;
        const auto cost = run_operations(chain, keep_checkpoints(layers, checkpoints, save_last));
        EXPECT_EQ(cost.time, 3 * layers + again);
        const int last = layers - checkpoints.back() + 1;
        const int kept = static_cast<int>(checkpoints.size()) - 1;  // the chain's input is nobody's
        EXPECT_EQ(cost.forward.held_bytes, 10 * kept + (save_last ? 50 * last : 0));
      }
    }
  }
}

TEST(RecomputeModes, SqrtHoldsTheRootOfWhatSavingHolds) {
  const Chain chain = equal_chain(100);
  const auto cost = run_operations(chain, keep_checkpoints(100, sqrt_checkpoints(100), false));
  EXPECT_EQ(cost.forward.held_bytes, 90);
  EXPECT_LE(cost.peak_bytes, 90 + 10 * 50 + 30);
}

/// Groups replayed layer by layer give the list back.
std::vector<Operation> ungroup(const GroupedOperations& grouped) {
  std::vector<Operation> operations;
  for (const Operation& operation : grouped.operations) {
    const auto g = static_cast<std::size_t>(operation.layer - 1);
    const int first =
        1 + std::accumulate(grouped.sizes.begin(),
                            grouped.sizes.begin() + static_cast<std::ptrdiff_t>(g), 0);
    const int last = first + grouped.sizes[g] - 1;
    for (int l = first; l <= last; ++l) {
      const bool keep = operation.op == LayerOp::kForwardKeep && l > first;
      const LayerOp op = keep ? LayerOp::kForwardDiscard : operation.op;
      operations.push_back({op, operation.op == LayerOp::kBackward ? first + last - l : l});
    }
  }
  return operations;
}

TEST(GroupLayers, SaysTheSameInFewerWords) {
  EXPECT_THAT(group_layers(save_everything(5), std::vector<char>(5)).sizes, ElementsAre(5));
  EXPECT_THAT(group_layers(save_everything(5), {0, 0, 1, 0, 0}).sizes, ElementsAre(2, 1, 2));
  EXPECT_THAT(group_layers(keep_checkpoints(7, {1, 4}, false), std::vector<char>(7)).sizes,
              ElementsAre(3, 4));
  EXPECT_THAT(group_layers(keep_checkpoints(7, {1, 4}, true), {1, 0, 0, 0, 0, 0, 0}).sizes,
              ElementsAre(1, 2, 4));
  std::mt19937 random(5);
  for (int repeat = 0; repeat < 300; ++repeat) {
    Chain chain;
    for (int l = 0; l < 12; ++l) {
      const std::int64_t bytes = std::uniform_int_distribution<int>(1, 5)(random);
      chain.layers.push_back({1, 2, bytes, bytes * 3, 0, bytes});
    }
    const std::int64_t budget =
        least_budget(chain) + std::uniform_int_distribution<int>(0, 60)(random);
    const auto operations = optimal_recompute(chain, budget).operations;
    std::vector<char> alone(12);
    for (char& one : alone) one = std::uniform_int_distribution<int>(0, 5)(random) == 0 ? 1 : 0;
    const GroupedOperations grouped = group_layers(operations, alone);
    EXPECT_EQ(ungroup(grouped), operations);
    EXPECT_EQ(std::accumulate(grouped.sizes.begin(), grouped.sizes.end(), 0), 12);
  }
}

}  // namespace
}  // namespace pipewright
