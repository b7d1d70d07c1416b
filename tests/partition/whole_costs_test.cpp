#include "pipewright/partition/whole_costs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace pipewright {
namespace {

std::vector<std::uint64_t> small(const WholeCosts& costs) {
  return {costs.layers.begin(), costs.layers.end()};
}

TEST(WholeCosts, ReadsWhatWasWritten) {
  const WholeCosts costs = to_whole(std::vector<double>{0.1, 1.25, 30, 0});
  EXPECT_EQ(costs.exponent, -2);
  EXPECT_EQ(small(costs), (std::vector<std::uint64_t>{10, 125, 3000, 0}));
  EXPECT_EQ(costs.value(135), 1.35);
}

TEST(WholeCosts, TakesALargeUnitWhereItCan) {
  const WholeCosts costs = to_whole(std::vector<double>{2e300, 1e300});
  EXPECT_EQ(costs.exponent, 300);
  EXPECT_EQ(small(costs), (std::vector<std::uint64_t>{2, 1}));
}

TEST(WholeCosts, ZerosOfEitherSign) {
  EXPECT_EQ(small(to_whole(std::vector<double>{0.0, -0.0})), (std::vector<std::uint64_t>{0, 0}));
}

TEST(WholeCosts, AnyDoubleComesBack) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 10000; ++round) {
    const double value = std::abs(std::bit_cast<double>(random()));
    if (!std::isfinite(value)) continue;
    const WholeCosts costs = to_whole(std::vector<double>{value});
    ASSERT_EQ(costs.value(costs.layers[0]), value);
  }
}

TEST(WholeCosts, RoundsOnlyWhatIsFarBelowTheLargest) {
  const WholeCosts costs = to_whole(std::vector<double>{1e30, 1, 1e-300});
  EXPECT_EQ(costs.value(costs.layers[0]), 1e30);
  EXPECT_EQ(costs.value(costs.layers[1]), 1);
  EXPECT_EQ(costs.value(costs.layers[2]), 0);
}

TEST(WholeCosts, SumsOfTheLargestDoublesFit) {
  const WholeCosts costs =
      to_whole(std::vector<double>(100000, std::numeric_limits<double>::max()));
  const std::vector<uint128> sums = prefix_sums(costs.layers);
  EXPECT_TRUE(sums.back() / 100000 == costs.layers[0]);
  EXPECT_TRUE(sums.back() < uint128{1} << 127);
}

TEST(Shrink, LeavesWhatFits) {
  const WholeCosts costs = to_whole(std::vector<double>{3, 5});
  EXPECT_EQ(shrink(costs, 8), (std::vector<std::uint64_t>{3, 5}));
}

TEST(Shrink, RoundsToTheTotal) {
  const WholeCosts costs = to_whole(std::vector<double>{1000, 1000, 3, 500});
  const std::vector<std::uint64_t> shrunk = shrink(costs, 100);
  EXPECT_EQ(shrunk, (std::vector<std::uint64_t>{31, 31, 0, 16}));
}

}  // namespace
}  // namespace pipewright
