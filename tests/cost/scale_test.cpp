#include "pipewright/cost/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

/// A layer whose forward takes `fixed` and one a row; 10 bytes a row are saved.
Profile profile_of(int rows, double fixed) {
  LayerCost layer;
  layer.name = "layer";
  layer.forward_seconds = fixed + rows;
  layer.backward_seconds = 2 * layer.forward_seconds;
  layer.saved_bytes = std::int64_t{10} * rows;
  layer.parameter_bytes = 100;
  layer.step_seconds = 3;
  Profile profile;
  profile.micro_batch_size = rows;
  profile.input_bytes = std::int64_t{4} * rows;
  profile.layers = {layer};
  return profile;
}

TEST(ScaleProfile, FollowsOneProfileInProportion) {
  const Profile one = profile_of(4, 0);
  const Profile half = scale_profile(std::span(&one, 1), 2, 2);
  EXPECT_EQ(half.layers[0].forward_seconds, 2);
  EXPECT_EQ(half.layers[0].saved_bytes, 20);
  EXPECT_EQ(half.layers[0].parameter_bytes, 100);
  EXPECT_EQ(half.layers[0].step_seconds, 3);
  EXPECT_EQ(half.input_bytes, 8);
  EXPECT_EQ(half.micro_batch_size, 2);
}

TEST(ScaleProfile, FollowsTheLineBetweenSeveral) {
  const std::vector<Profile> profiles = {profile_of(2, 5), profile_of(4, 5), profile_of(8, 5)};
  for (const double rows : {1.0, 2.0, 3.0, 4.0, 5.5, 8.0}) {
    const Profile scaled = scale_profile(profiles, rows, static_cast<int>(std::ceil(rows)));
    EXPECT_DOUBLE_EQ(scaled.layers[0].forward_seconds, 5 + rows) << rows;
    EXPECT_EQ(scaled.layers[0].saved_bytes, 10 * static_cast<int>(std::ceil(rows))) << rows;
  }
  // Beyond the largest, what does not grow with the rows is no longer saved on.
  EXPECT_DOUBLE_EQ(scale_profile(profiles, 16, 16).layers[0].forward_seconds, 2 * (5 + 8));
  EXPECT_EQ(scale_profile(profiles, 16, 16).layers[0].saved_bytes, 160);
}

TEST(ScaleProfile, DoesNotFollowNoiseBelowWhatIsPossible) {
  // The larger one was measured faster.
  const std::vector<Profile> profiles = {profile_of(4, 8), profile_of(8, 0)};
  const auto forward = [&](double rows) {
    return scale_profile(profiles, rows, 1).layers[0].forward_seconds;
  };
  EXPECT_EQ(forward(2), 12);  // not more than for 4
  // One that would reach 0 before there are no rows.
  const std::vector<Profile> steep = {profile_of(4, -3), profile_of(8, 2)};
  EXPECT_EQ(scale_profile(steep, 2, 2).layers[0].forward_seconds, 0.5);
}

TEST(ScaleProfile, RefusesWhatDoesNotBelongTogether) {
  const auto why = [](const std::vector<Profile>& profiles) {
    return refusal([&] { scale_profile(profiles, 1, 1); });
  };
  EXPECT_THAT(why({}), HasSubstr("there is none"));
  EXPECT_THAT(why({profile_of(2, 0), profile_of(2, 0)}), HasSubstr("micro-batches of 2 after 2"));
  Profile other = profile_of(4, 0);
  other.layers[0].name = "another";
  EXPECT_THAT(why({profile_of(2, 0), other}), HasSubstr("different models"));
}

}  // namespace
}  // namespace pipewright
