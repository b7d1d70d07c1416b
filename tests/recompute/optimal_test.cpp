#include "pipewright/recompute/optimal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "pipewright/recompute/modes.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Chain random_chain(std::mt19937& random, int layers, int most_bytes) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  Chain chain;
  for (int i = 0; i < layers; ++i) {
    ChainLayer layer;
    layer.forward = draw(0, 9);
    layer.backward = draw(0, 18);
    layer.output_bytes = draw(0, most_bytes);
    layer.saved_bytes = layer.output_bytes + draw(0, 2 * most_bytes);
    layer.forward_temp_bytes = draw(0, most_bytes);
    layer.backward_temp_bytes = draw(0, 2 * most_bytes);
    if (draw(0, 1) == 1) layer.idle_bytes = draw(0, static_cast<int>(layer.output_bytes));
    chain.layers.push_back(layer);
  }
  return chain;
}

/// Every plan of the class, written out: each layer is saved, or its input is kept and the forward
/// goes on to some layer where it starts anew.
void all_plans(int s, int t, std::vector<std::vector<Operation>>* result) {
  const auto join = [](std::vector<Operation> a, const std::vector<Operation>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  std::vector<std::vector<Operation>> after_save = {{}};
  if (s < t) {
    after_save.clear();
    all_plans(s + 1, t, &after_save);
  }
  for (const auto& rest : after_save) {
    auto plan = join({{LayerOp::kForwardSave, s}}, rest);
    plan.push_back({LayerOp::kBackward, s});
    result->push_back(std::move(plan));
  }
  for (int middle = s + 1; middle <= t; ++middle) {
    std::vector<Operation> forwards = {{LayerOp::kForwardKeep, s}};
    for (int l = s + 1; l < middle; ++l) forwards.push_back({LayerOp::kForwardDiscard, l});
    std::vector<std::vector<Operation>> later, earlier;
    all_plans(middle, t, &later);
    all_plans(s, middle - 1, &earlier);
    for (const auto& one : later) {
      for (const auto& two : earlier) result->push_back(join(join(forwards, one), two));
    }
  }
}

TEST(OptimalRecompute, EqualsBruteForceOnThousandsOfChains) {
  std::mt19937 random(1);
  int chains = 0;
  for (int layers = 1; layers <= 6; ++layers) {
    std::vector<std::vector<Operation>> plans;
    all_plans(1, layers, &plans);
    for (int repeat = 0; repeat < 800; ++repeat, ++chains) {
      const Chain chain = random_chain(random, layers, 6);
      std::vector<OperationsCost> costs;
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (const auto& plan : plans) {
        costs.push_back(run_operations(chain, plan));
        least = std::min(least, costs.back().peak_bytes);
      }
      ASSERT_EQ(least_budget(chain), least);
      for (const std::int64_t budget :
           {least - 1, least, least + 1, least + 3, least + 8, least + 40}) {
        double best = std::numeric_limits<double>::infinity();
        for (const auto& cost : costs) {
          if (cost.peak_bytes <= budget) best = std::min(best, cost.time);
        }
        const RecomputePlan plan = optimal_recompute(chain, budget);
        ASSERT_EQ(plan.feasible, budget >= least);
        ASSERT_EQ(plan.least_budget_bytes, least);
        if (!plan.feasible) continue;
        ASSERT_TRUE(plan.exact);
        ASSERT_EQ(plan.cost.time, best) << "layers " << layers << " budget " << budget;
        ASSERT_LE(plan.cost.peak_bytes, budget);
      }
    }
  }
  EXPECT_EQ(chains, 4800);
}

TEST(OptimalRecompute, RoundedSizesKeepTheBudgetAndComeNear) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 8; ++repeat) {
    const Chain chain = random_chain(random, 12, 1000);
    const std::int64_t least = least_budget(chain);
    double before = std::numeric_limits<double>::infinity();
    for (const std::int64_t budget : {least, least * 5 / 4, least * 3 / 2, least * 2, least * 4}) {
      const RecomputePlan exact = optimal_recompute(chain, budget, 1 << 20);
      const RecomputePlan rounded = optimal_recompute(chain, budget, 64);
      ASSERT_TRUE(exact.exact);
      ASSERT_LE(exact.cost.peak_bytes, budget);
      ASSERT_LE(rounded.cost.peak_bytes, budget);
      ASSERT_LE(exact.cost.time, rounded.cost.time);
      ASSERT_LE(exact.cost.time, before);  // more memory never hurts
      before = exact.cost.time;
    }
  }
}

TEST(OptimalRecompute, SavesEverythingWhereItMay) {
  std::mt19937 random(3);
  const Chain chain = random_chain(random, 40, 50);
  const RecomputePlan plan = optimal_recompute(chain, std::int64_t{1} << 40);
  double once = 0;
  for (const ChainLayer& layer : chain.layers) once += layer.forward + layer.backward;
  EXPECT_EQ(plan.cost.time, once);  // layers that cost nothing may still be run again
}

TEST(OptimalRecompute, TwoLayersByHand) {
  Chain chain;
  chain.layers = {{1, 2, 4, 10, 0, 4}, {1, 2, 4, 10, 0, 4}};
  // All saved: 10 + 10, and the gradient of 4; while the second runs backward its input's too.
  const RecomputePlan all = optimal_recompute(chain, 28);
  EXPECT_EQ(all.cost.time, 6);
  EXPECT_EQ(all.cost.peak_bytes, 28);
  // One less: the first runs again. 4 kept, 10 saved, gradients of 4 and 4.
  const RecomputePlan less = optimal_recompute(chain, 27);
  EXPECT_EQ(less.cost.time, 7);
  EXPECT_EQ(less.cost.peak_bytes, 22);
  EXPECT_EQ(less.least_budget_bytes, 22);
  EXPECT_THAT(less.operations,
              ElementsAre(Operation{LayerOp::kForwardKeep, 1}, Operation{LayerOp::kForwardSave, 2},
                          Operation{LayerOp::kBackward, 2}, Operation{LayerOp::kForwardSave, 1},
                          Operation{LayerOp::kBackward, 1}));
  EXPECT_FALSE(optimal_recompute(chain, 21).feasible);
}

TEST(OptimalRecompute, LongChainsAreEvenlySpread) {
  Chain chain;
  chain.layers.assign(200, {1, 2, 1 << 20, 5 << 20, 1 << 18, 2 << 20});
  const std::int64_t all = optimal_recompute(chain, std::int64_t{1} << 50).cost.peak_bytes;
  const RecomputePlan tenth = optimal_recompute(chain, all / 10);
  EXPECT_TRUE(tenth.feasible);
  EXPECT_LE(tenth.cost.peak_bytes, all / 10);
  EXPECT_LE(tenth.cost.time, 600 + 200);  // Chen's one forward more
}

TEST(OptimalRecompute, IsNeverSlowerThanEveryNOrSqrtAtTheirPeak) {
  std::mt19937 random(4);
  int faster = 0;
  for (int repeat = 0; repeat < 30; ++repeat) {
    const Chain chain = random_chain(random, 20, 8);
    for (int n = 1; n <= 21; ++n) {
      const auto checkpoints = n <= 20 ? every(20, n) : sqrt_checkpoints(20);
      for (const bool save_last : {true, false}) {
        const auto cost = run_operations(chain, keep_checkpoints(20, checkpoints, save_last));
        const RecomputePlan plan = optimal_recompute(chain, cost.peak_bytes);
        ASSERT_TRUE(plan.exact);
        ASSERT_LE(plan.cost.time, cost.time) << "every " << n;
        if (plan.cost.time < cost.time) ++faster;
      }
    }
  }
  EXPECT_GT(faster, 600);  // of 1260
}

TEST(OptimalRecompute, AThousandLayersKeepTheirBudgetAndComeNearTheBest) {
  std::mt19937 random(6);
  const Chain chain = random_chain(random, 1000, 100);
  double once = 0;
  for (const ChainLayer& layer : chain.layers) once += layer.forward + layer.backward;
  const std::int64_t budget = run_operations(chain, save_everything(1000)).peak_bytes / 8;
  const RecomputePlan plan = optimal_recompute(chain, budget);
  ASSERT_TRUE(plan.feasible);
  EXPECT_FALSE(plan.exact);
  EXPECT_LE(plan.cost.peak_bytes, budget);
  EXPECT_LE(plan.cost.time, once * 4 / 3);  // one forward more, of three parts, at the most
}

TEST(RunOperations, RefusesListsThatCannotRun) {
  Chain chain;
  chain.layers = {{1, 2, 4, 10, 0, 4}, {1, 2, 4, 10, 0, 4}};
  const auto run = [&](std::vector<Operation> list) {
    return refusal([&] { run_operations(chain, list); });
  };
  EXPECT_THAT(run({{LayerOp::kForwardSave, 2}}),
              HasSubstr("forward_save of layer 2 cannot run: its input is not there"));
  EXPECT_THAT(run({{LayerOp::kForwardSave, 3}}), HasSubstr("there is no such layer"));
  EXPECT_THAT(
      run({{LayerOp::kForwardKeep, 1}, {LayerOp::kForwardKeep, 2}, {LayerOp::kBackward, 2}}),
      HasSubstr("what it needs was not saved"));
  EXPECT_THAT(run({{LayerOp::kForwardSave, 1}, {LayerOp::kBackward, 1}}),
              HasSubstr("it is not its turn"));
  EXPECT_THAT(
      run({{LayerOp::kForwardSave, 1}, {LayerOp::kForwardSave, 2}, {LayerOp::kBackward, 2}}),
      HasSubstr("the list ends before the backward of layer 1"));
}

TEST(ParseChain, ReadsAndNamesMistakes) {
  const Chain chain = parse_chain(R"({"layers": [{"forward": 1.5, "output_bytes": 8}]})", "chain");
  EXPECT_EQ(chain.layer(1).backward, 3);
  EXPECT_EQ(chain.layer(1).saved_bytes, 8);
  const auto refused = [](const char* text) { return refusal([&] { parse_chain(text, "f"); }); };
  EXPECT_THAT(refused("{}"), HasSubstr("layers"));
  EXPECT_THAT(refused(R"({"layers": []})"), HasSubstr("the chain has no layers"));
  EXPECT_THAT(refused(R"({"layers": [{"forward": 1}]})"), HasSubstr("output_bytes"));
  EXPECT_THAT(refused(R"({"layers": [{"forward": 1, "output_bytes": 9, "saved_bytes": 3}]})"),
              HasSubstr("saved_bytes 3 is less than output_bytes 9"));
  EXPECT_THAT(refused(R"({"layers": [{"forward": 1, "output_bytes": 9, "foward": 3}]})"),
              HasSubstr("foward"));
}

}  // namespace
}  // namespace pipewright
