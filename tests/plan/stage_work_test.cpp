// What a stage costs in a Program.

#include "pipewright/plan/stage_work.h"

#include <gtest/gtest.h>

#include "pipewright/recompute/modes.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

Profile two_layers() {
  Profile profile;
  for (const char* name : {"first", "second"}) {
    LayerCost layer;
    layer.name = name;
    layer.forward_seconds = 1;
    layer.output_bytes = 100;
    layer.saved_bytes = 100;
    profile.layers.push_back(layer);
  }
  return profile;
}

double backward_temp(const Profile& profile, const char* schedule) {
  const Program program = make_schedule({.name = schedule, .ranks = 1, .micro_batches = 2});
  return stage_cost(profile, {0, 2}, program, 0, save_everything(2)).backward_temp_bytes;
}

/// What only the next layer's backward reads is gone by a layer's own, but where that layer's
/// weight half is still to come.
TEST(StageCost, CountsWhatTheNextLayerReadNoLongerWhereBackwardsAreWhole) {
  Profile profile = two_layers();
  profile.layers[0].backward_temp_bytes = 1000;
  const double whole = backward_temp(profile, "1f1b");
  const double split = backward_temp(profile, "zb-h1");
  profile.layers[0].gone_bytes = 100;
  EXPECT_EQ(backward_temp(profile, "1f1b"), whole - 100);
  EXPECT_EQ(backward_temp(profile, "zb-h1"), split);
  profile.layers[0].backward_temp_bytes = 50;  // never less than none
  EXPECT_GE(backward_temp(profile, "1f1b"), 0);
}

TEST(StageCost, CountsCopiesOfWeightsOnce) {
  Profile profile = two_layers();
  const Program program = make_schedule({.name = "1f1b", .ranks = 1, .micro_batches = 2});
  const auto cost = [&] { return stage_cost(profile, {0, 2}, program, 0, save_everything(2)); };
  const double before = cost().static_bytes;
  profile.layers[1].copy_bytes = 70;
  EXPECT_EQ(cost().static_bytes, before + 70);
}

}  // namespace
}  // namespace pipewright
