#include "pipewright/input/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "pipewright/input/draw.h"
#include "pipewright/input/permutation.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

using Numbers = std::vector<std::int64_t>;

Numbers permuted(std::int64_t n, std::uint64_t seed) {
  const Permutation permutation(n, seed);
  Numbers numbers;
  for (std::int64_t i = 0; i < n; ++i) numbers.push_back(permutation.at(i));
  return numbers;
}

Numbers sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Numbers first(std::int64_t n) {
  Numbers numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// How far counts are from being all the same, in deviations of what chance makes of it.
double chi_square_deviations(const std::map<Numbers, int>& counts, std::size_t kinds, int draws) {
  const double expected = draws / static_cast<double>(kinds);
  double sum = static_cast<double>(kinds - counts.size()) * expected;
  for (const auto& [kind, count] : counts)
    sum += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(kinds - 1);
  return (sum - freedom) / std::sqrt(2 * freedom);
}

// ---- Draw ----

// SplitMix64 from seed 0: the numbers its author's own program prints.
TEST(Draw, IsSplitMix64) {
  Draw draw(0);
  EXPECT_EQ(draw.bits(), 0xe220a8397b1dcdaf);
  EXPECT_EQ(draw.bits(), 0x6e789e6aa1b965f4);
  EXPECT_EQ(draw.bits(), 0x06c45d188009454f);
}

TEST(Draw, BelowStaysBelowAndReachesAll) {
  Draw draw(1);
  std::map<std::uint64_t, int> counts;
  for (int i = 0; i < 6000; ++i) ++counts[draw.below(6)];
  ASSERT_EQ(counts.size(), 6U);
  EXPECT_EQ(counts.rbegin()->first, 5U);
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 1000, 150) << value;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(draw.below(1), 0U);
}

TEST(Draw, BellHasMeanZeroAndDeviationOne) {
  Draw draw(2);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double value = draw.bell();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.04);
}

TEST(Draw, SeedsFromDifferentWordsAreUnrelated) {
  EXPECT_EQ(seed_from({1, 2}), seed_from({1, 2}));
  EXPECT_NE(seed_from({1, 2}), seed_from({2, 1}));
  EXPECT_NE(seed_from({1, 2}), seed_from({1, 2, 0}));
  int different_bits = 0;
  for (std::uint64_t bit = 0; bit < 64; ++bit) {
    const std::uint64_t change = seed_from({7, 9}) ^ seed_from({7, 9 ^ (std::uint64_t{1} << bit)});
    different_bits += __builtin_popcountll(change);
  }
  EXPECT_NEAR(different_bits / 64.0, 32, 2);
}

// ---- Permutation ----

TEST(Permutation, HasEveryNumberOnce) {
  for (std::int64_t n = 1; n <= 130; ++n) EXPECT_EQ(sorted(permuted(n, 5)), first(n)) << n;
  EXPECT_EQ(sorted(permuted(10007, 3)), first(10007));
}

TEST(Permutation, DependsOnTheSeedAlone) {
  EXPECT_EQ(permuted(100, 1), permuted(100, 1));
  EXPECT_NE(permuted(100, 1), permuted(100, 2));
}

// A run's results depend on the order: it may not change by accident, nor by machine.
TEST(Permutation, IsThisOneForSeedOne) {
  EXPECT_THAT(permuted(10, 1), testing::ElementsAre(3, 1, 8, 4, 2, 6, 0, 7, 9, 5));
}

TEST(Permutation, AllOrdersOfAFewAreAsLikely) {
  for (const std::int64_t n : {2, 3, 4, 5}) {
    std::map<Numbers, int> counts;
    constexpr int kDraws = 24000;
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) ++counts[permuted(n, seed_from({seed}))];
    std::size_t orders = 1;
    for (std::int64_t i = 2; i <= n; ++i) orders *= static_cast<std::size_t>(i);
    EXPECT_LT(std::abs(chi_square_deviations(counts, orders, kDraws)), 5) << n;
  }
}

TEST(Permutation, NeighboursAreNotNeighboursAfterwards) {
  constexpr std::int64_t kSize = 100000;
  const Permutation permutation(kSize, 11);
  double sum = 0;
  for (std::int64_t i = 0; i + 1 < kSize; ++i) {
    sum += static_cast<double>(std::abs(permutation.at(i) - permutation.at(i + 1)));
  }
  EXPECT_NEAR(sum / kSize / kSize, 1 / 3.0, 0.005);  // as of two places drawn at random
}

TEST(Permutation, ReachesFarIntoHugeSets) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const Permutation permutation(huge, 1);
  EXPECT_NE(permutation.at(0), permutation.at(1));
  for (const std::int64_t place : {std::int64_t{0}, huge / 2, huge - 1}) {
    EXPECT_GE(permutation.at(place), 0);
    EXPECT_LT(permutation.at(place), huge);
  }
}

TEST(Permutation, RefusesNothing) {
  EXPECT_EQ(refusal([] { Permutation(0, 1); }), "[data] 0 samples cannot be shuffled");
}

// ---- SampleOrder ----

Numbers all_rows(const SampleOrder& order, std::int64_t epoch) {
  Numbers rows;
  for (std::int64_t batch = 0; batch < order.num_batches(); ++batch) {
    const Numbers more = order.rows(epoch, batch);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

TEST(SampleOrder, HasEverySampleOnceAnEpoch) {
  for (const std::int64_t samples : {1, 2, 7, 12, 100}) {
    for (const std::int64_t batch : {1, 3, 4, 12, 200}) {
      for (const bool shuffle : {true, false}) {
        const SampleOrder order({samples, batch, shuffle, 3});
        for (const std::int64_t epoch : {0, 1, 1000}) {
          EXPECT_EQ(sorted(all_rows(order, epoch)), first(samples)) << samples << " " << batch;
        }
      }
    }
  }
}

TEST(SampleOrder, KeepsTheLastBatchThatIsNotFull) {
  const SampleOrder order({10, 4, true, 1});
  EXPECT_EQ(order.num_batches(), 3);
  EXPECT_EQ(order.rows(0, 0).size(), 4U);
  EXPECT_EQ(order.rows(0, 2).size(), 2U);
}

TEST(SampleOrder, IsTheFilesWithoutShuffling) {
  EXPECT_EQ(all_rows(SampleOrder({9, 4, false, 1}), 5), first(9));
}

TEST(SampleOrder, DiffersByEpochAndSeed) {
  const SampleOrder order({50, 8, true, 1});
  EXPECT_NE(all_rows(order, 0), all_rows(order, 1));
  EXPECT_NE(all_rows(order, 0), all_rows(SampleOrder({50, 8, true, 2}), 0));
}

// The shares, one after the other, are the batch: so replicas that load their own rows see what
// they would have been given.
TEST(SampleOrder, SharesOfReplicasMakeUpTheBatch) {
  for (const std::int64_t batch : {4, 5, 7, 16}) {
    const OrderOptions options{53, batch, true, 9};
    const SampleOrder whole(options);
    for (int replicas = 1; replicas <= 3; ++replicas) {
      if (53 % batch != 0 && 53 % batch < replicas) continue;
      for (std::int64_t b = 0; b < whole.num_batches(); ++b) {
        Numbers joined;
        std::size_t most = 0;
        std::size_t least = 1000;
        for (int replica = 0; replica < replicas; ++replica) {
          const Numbers rows = SampleOrder(options, {replica, replicas}).rows(2, b);
          joined.insert(joined.end(), rows.begin(), rows.end());
          most = std::max(most, rows.size());
          least = std::min(least, rows.size());
        }
        EXPECT_EQ(joined, whole.rows(2, b)) << batch << " " << replicas << " " << b;
        EXPECT_LE(most, least + 1);
      }
    }
  }
}

TEST(SampleOrder, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(refusal([] {
              SampleOrder({0, 4, true, 1});
            }),
            "[data] 0 samples; there must be at least one");
  EXPECT_EQ(refusal([] { SampleOrder({5, 0, true, 1}); }), "[data] batch = 0; use 1 or more");
  EXPECT_EQ(refusal([] {
              SampleOrder({5, 2, true, 1}, {2, 2});
            }),
            "[data] replica 2 of 2; they count from 0");
  EXPECT_EQ(refusal([] {
              SampleOrder({9, 4, true, 1}, {0, 2});
            }),
            "[data] the last batch of an epoch has 1 of 9 samples, too few for 2 replicas; choose "
            "another batch than 4");
}

// ---- Positions ----

TEST(DataPosition, ReadsBackFromItsText) {
  const DataPosition position{3, 17, {60000, 32, true, 0xffffffffffffffff}};
  const auto text = to_json(position).dump();
  EXPECT_EQ(data_position_from_json(nlohmann::json::parse(text)), position);
}

TEST(DataPosition, NamesTheMemberThatIsWrong) {
  const auto with = [](const char* name, const nlohmann::json& value) {
    nlohmann::json json = to_json(DataPosition{0, 0, {10, 2, true, 1}});
    json[name] = value;
    return refusal([&] { data_position_from_json(json); });
  };
  EXPECT_EQ(with("epoch", 1), "accepted");
  EXPECT_THAT(with("epoch", -1), HasSubstr("epoch"));
  EXPECT_THAT(with("batch", "3"), HasSubstr("batch"));
  EXPECT_THAT(with("samples", 0), HasSubstr("samples"));
  EXPECT_EQ(with("shuffle", "perhaps"),
            "[data] position.shuffle is 'perhaps'; it must be yes or no");
  EXPECT_EQ(with("seed", "1x"),
            "[data] position.seed is '1x'; it must be a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(with("seed", "18446744073709551616"),
            "[data] position.seed is '18446744073709551616'; it must be a whole number from 0 to "
            "2^64 - 1");
  EXPECT_THAT(with("offset", 3), HasSubstr("offset"));
}

TEST(DataPosition, OfAnotherOrderIsRefused) {
  const SampleOrder order({10, 4, true, 1});
  const auto check = [&](const DataPosition& position) {
    return refusal([&] { order.check(position); });
  };
  EXPECT_EQ(check({5, 2, {10, 4, true, 1}}), "accepted");
  EXPECT_EQ(check({5, 3, {10, 4, true, 1}}),
            "[data] there is no batch 3 in epoch 5; an epoch has 3");
  EXPECT_EQ(check({0, 0, {11, 5, false, 2}}),
            "[data] the position is of another order of samples: samples was 11 and is 10 batch "
            "was 5 and is 4 shuffle was 0 and is 1 seed was 2 and is 1; resume with the data and "
            "options it was saved with");
}

}  // namespace
}  // namespace pipewright
