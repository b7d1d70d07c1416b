#include "pipewright/input/prefetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "tests/refusal.h"

namespace pipewright {
namespace {

/// Move-only, as tensors' owners may be.
using Item = std::unique_ptr<std::int64_t>;

Item make_item(std::int64_t number) { return std::make_unique<std::int64_t>(number * number); }

class PrefetchOver : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(PrefetchOver, GivesItemsInOrder) {
  const auto [workers, ahead] = GetParam();
  Prefetch<Item> prefetch(workers, ahead, 5, make_item);
  for (std::int64_t i = 5; i < 300; ++i) {
    EXPECT_EQ(prefetch.next(), i);
    ASSERT_EQ(*prefetch.take(), i * i);
  }
}

TEST_P(PrefetchOver, MakesEachOnceAndNoMoreAheadThanAllowed) {
  const auto [workers, ahead] = GetParam();
  std::atomic<int> made = 0;
  std::atomic<int> taken = 0;
  std::atomic<int> most_ahead = 0;
  {
    Prefetch<Item> prefetch(workers, ahead, 0, [&](std::int64_t number) {
      const int beyond = ++made - taken;
      int most = most_ahead;
      while (beyond > most && !most_ahead.compare_exchange_weak(most, beyond)) {
      }
      return make_item(number);
    });
    for (int i = 0; i < 200; ++i) {
      prefetch.take();
      ++taken;
    }
  }
  // One more: the test's own count of what was taken may be late by one.
  EXPECT_LE(most_ahead, std::max(ahead, 1) + 1);
  EXPECT_GE(made, 200);
  EXPECT_LE(made, 200 + ahead);
}

TEST_P(PrefetchOver, AnErrorComesAtItsItemAndStays) {
  const auto [workers, ahead] = GetParam();
  Prefetch<Item> prefetch(workers, ahead, 0, [](std::int64_t number) {
    if (number == 7) throw InvalidArgument("data", "row 7 is bad");
    return make_item(number);
  });
  for (std::int64_t i = 0; i < 7; ++i) ASSERT_EQ(*prefetch.take(), i * i);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(refusal([&] { prefetch.take(); }), "[data] row 7 is bad");
    EXPECT_EQ(prefetch.next(), 7);
  }
}

TEST_P(PrefetchOver, EndsWhileItemsAreBeingMade) {
  const auto [workers, ahead] = GetParam();
  for (int i = 0; i < 50; ++i) {
    Prefetch<Item> prefetch(workers, ahead, 0, make_item);
    if (i % 2 == 0) prefetch.take();
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, PrefetchOver,
                         testing::Values(std::pair(0, 4), std::pair(1, 1), std::pair(1, 4),
                                         std::pair(3, 2), std::pair(4, 16)),
                         [](const auto& workers) {
                           return std::to_string(workers.param.first) + "Ahead" +
                                  std::to_string(workers.param.second);
                         });

}  // namespace
}  // namespace pipewright
