#include "pipewright/amp/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/refusal.h"

namespace pipewright {
namespace {

TEST(LossScaler, DefaultsAreFleets) {
  LossScaler scaler({});
  EXPECT_EQ(scaler.scale(), 32768);
  for (int step = 0; step < 999; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(LossScaler, OnlyOverflowsInARowCount) {
  LossScaler scaler({});
  for (int i = 0; i < 10; ++i) {
    scaler.update(true);
    scaler.update(false);
  }
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(LossScaler, AnOverflowStartsTheGoodStepsAnew) {
  LossScaler scaler({.growth_interval = 3});
  for (const bool overflow : {false, false, true, false, false}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, StaysBetweenOneAndWhatAFloatHolds) {
  LossScaler down({.init_scale = 2, .backoff_interval = 1});
  for (int i = 0; i < 5; ++i) down.update(true);
  EXPECT_EQ(down.scale(), 1);
  LossScaler up({.growth_interval = 1});
  for (int i = 0; i < 500; ++i) up.update(false);
  EXPECT_EQ(up.scale(), std::numeric_limits<float>::max());
}

TEST(LossScaler, GoesOnFromASavedState) {
  LossScaler first({.growth_interval = 3});
  first.update(false);
  first.update(false);
  LossScaler second({.growth_interval = 3});
  second.set_state(first.state());
  second.update(false);
  EXPECT_EQ(second.scale(), 65536);
}

TEST(LossScaler, RefusesWhatMakesNoSense) {
  const auto with = [](const LossScaling& options) {
    return refusal([&] { LossScaler scaler(options); });
  };
  EXPECT_EQ(with({.init_scale = 0}), "[amp] init_scale = 0; use 1 or more");
  EXPECT_EQ(with({.growth = 0.5}), "[amp] growth = 0.5; use 1 or more");
  EXPECT_EQ(with({.growth_interval = 0}), "[amp] growth_interval = 0; use 1 or more");
  EXPECT_EQ(with({.backoff = 0}), "[amp] backoff = 0; use more than 0 and at most 1");
  EXPECT_EQ(with({.backoff_interval = -1}), "[amp] backoff_interval = -1; use 1 or more");
}

}  // namespace
}  // namespace pipewright
