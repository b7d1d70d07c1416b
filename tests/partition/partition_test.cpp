#include "pipewright/partition/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "pipewright/base/error.h"
#include "pipewright/partition/whole_costs.h"
#include "tests/partition/brute_force.h"

namespace pipewright {
namespace {

using Costs = std::vector<double>;
using Sizes = std::vector<int>;

Sizes split(const Costs& costs, int num_stages) {
  return partition_by_bottleneck(costs, num_stages).sizes;
}

TEST(Partition, KnownAnswers) {
  EXPECT_EQ(split({1, 2, 3, 4, 5, 6}, 2), (Sizes{4, 2}));
  EXPECT_EQ(split({0, 0}, 2), (Sizes{1, 1}));
  EXPECT_EQ(split({0, 1, 2, 3, 3, 3}, 4), (Sizes{3, 1, 1, 1}));
  EXPECT_EQ(split({0, 1.1, 30, 3}, 3), (Sizes{2, 1, 1}));
  EXPECT_EQ(split(Costs(8, 1), 4), (Sizes{2, 2, 2, 2}));
}

TEST(Partition, BottleneckIsTheHeaviestStage) {
  EXPECT_EQ(partition_by_bottleneck(Costs{1, 2, 3, 4, 5, 6}, 2).bottleneck, 11);
  EXPECT_EQ(partition_by_bottleneck(Costs{0.1, 0.2, 0.3}, 2).bottleneck, 0.3);
  EXPECT_EQ(partition_by_bottleneck(Costs{0, 0, 0}, 2).bottleneck, 0);
  EXPECT_EQ(partition_by_bottleneck(Costs{7.25}, 1).bottleneck, 7.25);
}

TEST(Partition, AsManyStagesAsLayers) {
  EXPECT_EQ(split({5, 0, 0, 9, 1}, 5), (Sizes{1, 1, 1, 1, 1}));
}

TEST(Partition, EqualDecimalsAreBalanced) {
  for (const double cost : {0.1, 0.3, 1.0 / 3, 1e-300, 1e300, 5e-324}) {
    EXPECT_EQ(split(Costs(8, cost), 4), (Sizes{2, 2, 2, 2})) << cost;
    EXPECT_EQ(split(Costs(1000, cost), 50), Sizes(50, 20)) << cost;
  }
}

TEST(Partition, DecimalsThatAddUpToTheSameTie) {
  // As doubles 0.1 + 0.2 > 0.3, and 1,1,1,2 would have the least bottleneck.
  EXPECT_EQ(split({0.3, 0.1, 0.2, 0.15, 0.15}, 4), (Sizes{1, 2, 1, 1}));
}

TEST(Partition, TheRestOfAHugeLayerIsBalanced) {
  EXPECT_EQ(split({1, 1, 1, 1e6, 1, 1, 1, 1}, 4), (Sizes{3, 1, 2, 2}));
  EXPECT_EQ(split({1e12, 1, 1, 1, 1, 1, 1}, 4), (Sizes{1, 2, 2, 2}));
  EXPECT_EQ(split({0, 0, 0, 0, 0, 7}, 3), (Sizes{2, 2, 2}));
  // Beside 1e300 a 1 is nothing: 1e300 + 1 is the same double.
  EXPECT_EQ(split({1e300, 1, 1, 1, 1, 1}, 3), (Sizes{2, 2, 2}));
}

TEST(Partition, LargeWholeNumbersAreNotRounded) {
  const double huge = 0x1p53;
  EXPECT_EQ(split({huge, 1, huge - 2, 2}, 2), (Sizes{2, 2}));
  EXPECT_EQ(partition_by_bottleneck(Costs{huge - 1, 1, huge - 2, 1}, 2).sizes, (Sizes{2, 2}));
  EXPECT_EQ(partition_by_bottleneck(Costs{huge - 2, 3, huge - 2, 1}, 3).sizes, (Sizes{1, 1, 2}));
}

std::string message_of(const Costs& costs, int num_stages) {
  try {
    partition_by_bottleneck(costs, num_stages);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(PartitionErrors, SayWhatToDo) {
  EXPECT_EQ(message_of(Costs(6, 1), 8),
            "[partition] cannot split 6 layers into 8 stages; use --stages 6 or fewer");
  EXPECT_EQ(message_of({1}, 2), "[partition] cannot split 1 layer into 2 stages; use --stages 1");
  EXPECT_EQ(message_of(Costs(6, 1), 0),
            "[partition] cannot split 6 layers into 0 stages; use --stages 1 or more");
  EXPECT_EQ(message_of(Costs(6, 1), -1),
            "[partition] cannot split 6 layers into -1 stages; use --stages 1 or more");
  EXPECT_EQ(message_of({}, 1), "[partition] there are no layers to split; give at least one cost");
}

TEST(PartitionErrors, NameTheBadCost) {
  const std::string rule = "; costs must be finite and not negative";
  EXPECT_EQ(message_of({1, -2.5, 3}, 2),
            "[partition] the cost of layer 1 (counted from 0) is -2.5" + rule);
  EXPECT_EQ(message_of({1, 2, std::nan("")}, 2),
            "[partition] the cost of layer 2 (counted from 0) is nan" + rule);
  EXPECT_EQ(message_of({std::numeric_limits<double>::infinity(), 1}, 2),
            "[partition] the cost of layer 0 (counted from 0) is inf" + rule);
}

TEST(PartitionErrors, AStageThatNoDoubleHolds) {
  EXPECT_EQ(message_of({1e308, 1e308}, 1),
            "[partition] the cost of the heaviest stage is more than a double holds; use a larger "
            "unit for the costs");
  EXPECT_EQ(split({1e308, 1e308}, 2), (Sizes{1, 1}));
}

/// What a split is judged by, in this order.
using Rank = std::tuple<uint128, uint128, int>;

Rank rank_of(const std::vector<uint128>& costs, const Sizes& sizes) {
  uint128 bottleneck = 0;
  uint128 squares = 0;
  for (const uint128 sum : stage_sums(costs, sizes)) {
    bottleneck = std::max(bottleneck, sum);
    squares += sum * sum;
  }
  int counts = 0;
  for (const int size : sizes) counts += size * size;
  return {bottleneck, squares, counts};
}

/// How to make whole numbers, and the unit they are in as a decimal exponent.
struct Family {
  const char* name;
  int exponent;
  std::function<std::uint64_t(std::mt19937&)> next;
};

std::uint64_t below(std::mt19937& random, std::uint64_t limit) {
  return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random);
}

const std::vector<Family>& families() {
  static const std::vector<Family> kAll = {
      {"zeros and ones", 0, [](std::mt19937& random) { return below(random, 2); }},
      {"digits", 0, [](std::mt19937& random) { return below(random, 10); }},
      {"tenths", -1, [](std::mt19937& random) { return 1 + below(random, 12); }},
      {"thousandths", -3, [](std::mt19937& random) { return below(random, 5000); }},
      {"mostly zero", -2,
       [](std::mt19937& random) { return below(random, 4) == 0 ? below(random, 300) : 0; }},
      {"a huge one now and then", -1,
       [](std::mt19937& random) {
         return below(random, 6) == 0 ? 1000000000000 + below(random, 3) : below(random, 20);
       }},
      {"fifteen digits", -20, [](std::mt19937& random) { return below(random, 1000000000000000); }},
      {"tiny", -310, [](std::mt19937& random) { return below(random, 6); }},
      {"enormous", 300, [](std::mt19937& random) { return below(random, 6); }},
  };
  return kAll;
}

class PartitionAgainstBruteForce : public testing::TestWithParam<int> {};

TEST_P(PartitionAgainstBruteForce, LeastBottleneckThenMostBalanced) {
  const Family& family = families()[static_cast<std::size_t>(GetParam())];
  std::mt19937 random(12345);
  for (int round = 0; round < 1000; ++round) {
    const int num_layers = 1 + static_cast<int>(below(random, 11));
    const int num_stages =
        1 + static_cast<int>(below(random, static_cast<std::uint64_t>(num_layers)));
    std::vector<uint128> whole;
    Costs costs;
    for (int layer = 0; layer < num_layers; ++layer) {
      const std::uint64_t units = family.next(random);
      whole.push_back(units);
      const std::string text = std::to_string(units) + "e" + std::to_string(family.exponent);
      costs.push_back(std::strtod(text.c_str(), nullptr));
    }
    const Partition partition = partition_by_bottleneck(costs, num_stages);
    ASSERT_EQ(partition.sizes.size(), static_cast<std::size_t>(num_stages));
    ASSERT_GE(*std::min_element(partition.sizes.begin(), partition.sizes.end()), 1);
    ASSERT_EQ(std::accumulate(partition.sizes.begin(), partition.sizes.end(), 0), num_layers);

    const Rank ours = rank_of(whole, partition.sizes);
    for_each_split(num_layers, num_stages, [&](const Sizes& sizes) {
      ASSERT_TRUE(ours <= rank_of(whole, sizes))
          << testing::PrintToString(costs) << " ours " << testing::PrintToString(partition.sizes)
          << " better " << testing::PrintToString(sizes);
    });
    const Costs sums = stage_sums(costs, partition.sizes);
    EXPECT_DOUBLE_EQ(partition.bottleneck, *std::max_element(sums.begin(), sums.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PartitionAgainstBruteForce,
                         testing::Range(0, static_cast<int>(families().size())),
                         [](const testing::TestParamInfo<int>& family) {
                           std::string name =
                               families()[static_cast<std::size_t>(family.param)].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

/// The same optimum by the textbook dynamic program, for sizes that brute force cannot reach.
Rank best_rank(const std::vector<uint128>& costs, int num_stages, uint128 bound) {
  const std::vector<uint128> sums = prefix_sums(costs);
  const std::size_t n = costs.size();
  const std::pair<uint128, int> unreachable{~uint128{0}, 0};
  std::vector<std::pair<uint128, int>> best(n + 1, unreachable);
  best[0] = {0, 0};
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<std::pair<uint128, int>> next(n + 1, unreachable);
    for (std::size_t end = 1; end <= n; ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        const uint128 cost = sums[end] - sums[begin];
        if (cost > bound || best[begin] == unreachable) continue;
        const int count = static_cast<int>(end - begin);
        next[end] = std::min(next[end],
                             {best[begin].first + cost * cost, best[begin].second + count * count});
      }
    }
    best = next;
  }
  return {bound, best[n].first, best[n].second};
}

TEST(Partition, MediumSizesMatchTheDynamicProgram) {
  std::mt19937 random(99);
  for (int round = 0; round < 150; ++round) {
    const int num_layers = 40 + static_cast<int>(below(random, 60));
    const int num_stages =
        2 + static_cast<int>(below(random, static_cast<std::uint64_t>(num_layers - 2)));
    const std::uint64_t limit = round % 3 == 0 ? 3 : round % 3 == 1 ? 100 : 1000000;
    std::vector<uint128> whole;
    for (int layer = 0; layer < num_layers; ++layer) whole.push_back(below(random, limit));
    if (round % 5 == 0) whole[whole.size() / 2] = uint128{limit} * 50;
    const Costs costs(whole.begin(), whole.end());
    const Rank ours = rank_of(whole, split(costs, num_stages));
    EXPECT_TRUE(ours == best_rank(whole, num_stages, std::get<0>(ours))) << round;
  }
}

TEST(Partition, TenThousandLayersIntoAThousandStages) {
  std::mt19937 random(7);
  Costs spread(10000);
  for (double& cost : spread) cost = std::uniform_real_distribution<>(0, 1)(random);
  Costs one_huge(10000, 0.1);
  one_huge[5000] = 1e12;
  const std::vector<Costs> cases = {spread, Costs(10000, 1.0 / 3), one_huge, Costs(10000, 0)};
  for (const Costs& costs : cases) {
    const Partition partition = partition_by_bottleneck(costs, 1024);
    ASSERT_EQ(partition.sizes.size(), 1024U);
    EXPECT_EQ(std::accumulate(partition.sizes.begin(), partition.sizes.end(), 0), 10000);
    EXPECT_GE(*std::min_element(partition.sizes.begin(), partition.sizes.end()), 1);
  }
}

}  // namespace
}  // namespace pipewright
