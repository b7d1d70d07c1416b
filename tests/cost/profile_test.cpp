#include "pipewright/cost/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& json) {
  try {
    parse_profile(json, "p.json");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

std::string with_layers(const std::string& layers) {
  return R"({"format": "pipewright-profile", "version": 1, "layers": )" + layers + "}";
}

Profile sample() {
  Profile profile;
  profile.model = "gpt \"small\"";
  profile.machine = "two cores";
  profile.micro_batch_size = 4;
  profile.input_bytes = 100;
  for (int i = 0; i < 3; ++i) {
    LayerCost layer;
    layer.name = "block" + std::to_string(i);
    layer.forward_seconds = 0.1 + i;
    layer.backward_seconds = 0.3 + i;
    layer.backward_input_seconds = 0.2;
    layer.backward_weight_seconds = 0.15;
    layer.step_seconds = 1e-5;
    layer.output_bytes = 10 + i;
    layer.saved_bytes = 40 + i;
    layer.weight_half_bytes = 20;
    layer.parameter_bytes = 1LL << 40;
    profile.layers.push_back(layer);
  }
  return profile;
}

TEST(Profile, ReadsBackWhatItWrote) { EXPECT_EQ(parse_profile(to_json(sample()), "p"), sample()); }

TEST(Profile, FillsInWhatALayerLeavesOut) {
  const Profile profile = parse_profile(with_layers(R"([{"forward_seconds": 2}])"), "p");
  ASSERT_EQ(profile.layers.size(), 1U);
  EXPECT_EQ(profile.layers[0].name, "layer0");
  EXPECT_DOUBLE_EQ(profile.layers[0].backward_seconds, 4);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward_input_seconds, 2);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward_weight_seconds, 2);
}

TEST(Profile, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(refusal("[]"), HasSubstr("profile is array, not an object"));
  EXPECT_THAT(refusal(R"({"format": "x"})"), HasSubstr("this is no profile"));
  EXPECT_THAT(refusal(R"({"format": "pipewright-profile", "version": 9, "layers": []})"),
              HasSubstr("version 9, this program reads version 1"));
  EXPECT_THAT(refusal(with_layers("[]")), HasSubstr("has no layers"));
  EXPECT_THAT(refusal(with_layers("[{}]")), HasSubstr("layers[0].forward_seconds is missing"));
  EXPECT_THAT(refusal(with_layers(R"([{"forward_seconds": -1}])")),
              HasSubstr("layers[0].forward_seconds is -1"));
  EXPECT_THAT(refusal(with_layers(R"([{"forward_seconds": 1e308}])")),
              HasSubstr("forward_seconds of 1e+308 seconds is more than"));
  EXPECT_THAT(refusal(with_layers(R"([{"forward_seconds": 1, "saved_byte": 1}])")),
              HasSubstr("layers[0].saved_byte is no member there"));
  EXPECT_THAT(refusal(with_layers(R"([{"forward_seconds": 1, "saved_bytes": 1e30}])")),
              HasSubstr("saved_bytes"));
}

TEST(StageCosts, AddUpTheLayersOfAStage) {
  const auto stages = stage_costs(sample(), {2, 1});
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_DOUBLE_EQ(stages[0].forward, 0.1 + 1.1);
  EXPECT_DOUBLE_EQ(stages[0].backward, 0.3 + 1.3);
  EXPECT_DOUBLE_EQ(stages[0].backward_input, 0.4);
  EXPECT_DOUBLE_EQ(stages[0].backward_weight, 0.3);
  EXPECT_DOUBLE_EQ(stages[0].recompute, stages[0].forward);
  EXPECT_DOUBLE_EQ(stages[0].activation_bytes, 81);
  EXPECT_DOUBLE_EQ(stages[0].boundary_bytes, 100);  // the model's input
  EXPECT_DOUBLE_EQ(stages[0].weight_half_bytes, 40);
  EXPECT_DOUBLE_EQ(stages[1].boundary_bytes, 11);  // the output of the layer before
  EXPECT_THROW(stage_costs(sample(), {2}), InternalError);
  EXPECT_THROW(stage_costs(sample(), {2, 2}), InternalError);
}

TEST(UniformStages, DivideARanksShareByItsChunks) {
  UniformShare share;
  share.activation_bytes = 100;
  share.boundary_bytes = 8;
  const auto stages = uniform_stages(share, 4, 2);
  ASSERT_EQ(stages.size(), 4U);
  EXPECT_DOUBLE_EQ(stages[3].forward, 0.5);
  EXPECT_DOUBLE_EQ(stages[3].backward, 1);
  EXPECT_DOUBLE_EQ(stages[3].activation_bytes, 50);
  EXPECT_DOUBLE_EQ(stages[3].weight_half_bytes, 25);
  EXPECT_DOUBLE_EQ(stages[3].boundary_bytes, 8);
}

}  // namespace
}  // namespace pipewright
