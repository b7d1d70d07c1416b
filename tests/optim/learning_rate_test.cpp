#include "pipewright/optim/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;

std::vector<double> first(const LearningRate& rate, int updates) {
  std::vector<double> values;
  for (int i = 0; i < updates; ++i) values.push_back(rate(i));
  return values;
}

TEST(LearningRate, WarmsUpAndHandsOver) {
  EXPECT_THAT(first(constant_rate(), 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(first(warm_up(4), 6), ElementsAre(0.25, 0.5, 0.75, 1, 1, 1));
  EXPECT_THAT(first(warm_up(2, linear_decay(4)), 7), ElementsAre(0.5, 1, 1, 0.75, 0.5, 0.25, 0));
}

TEST(LearningRate, Decays) {
  EXPECT_THAT(first(linear_decay(2, 0.5), 4), ElementsAre(1, 0.75, 0.5, 0.5));
  EXPECT_THAT(first(cosine_decay(4, 0.2), 6),
              ElementsAre(DoubleEq(1), DoubleNear(0.6 + 0.4 * std::sqrt(0.5), 1e-12),
                          DoubleNear(0.6, 1e-12), DoubleNear(0.6 - 0.4 * std::sqrt(0.5), 1e-12),
                          DoubleNear(0.2, 1e-12), DoubleNear(0.2, 1e-12)));
  EXPECT_THAT(first(inverse_sqrt_decay(4), 5), ElementsAre(1, 1, 1, 1, DoubleEq(std::sqrt(0.8))));
  EXPECT_DOUBLE_EQ(inverse_sqrt_decay(4)(15), 0.5);
  EXPECT_THAT(first(step_decay(2, 0.1), 5),
              ElementsAre(1, 1, DoubleEq(0.1), DoubleEq(0.1), DoubleEq(0.01)));
}

TEST(LearningRate, RefusesWhatMakesNoSense) {
  EXPECT_EQ(refusal([] { warm_up(0); }), "[optim] a warm-up over 0 updates; use 1 or more");
  EXPECT_EQ(refusal([] { cosine_decay(-3); }), "[optim] a decay over -3 updates; use 1 or more");
  EXPECT_EQ(refusal([] { linear_decay(3, 2); }), "[optim] floor = 2; use 0 to 1");
  EXPECT_EQ(refusal([] { step_decay(3, -1); }), "[optim] factor = -1; use 0 to 1");
}

}  // namespace
}  // namespace pipewright
