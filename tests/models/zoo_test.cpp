// What holds for every model: gradients of plain training, the same bits for every pipeline, layers
// made now or by the process that runs them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/nn/outline.h"
#include "tests/models/families.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

class Zoo : public testing::TestWithParam<Family> {};

struct Way {
  int ranks = 1;
  const char* schedule = "1f1b";
  RecomputeMode recompute = RecomputeMode::kNone;
};
constexpr Way kWays[] = {{1}, {2}, {2, "zb-h1"}, {3, "gpipe", RecomputeMode::kAll}};

Strategy strategy_for(const Way& way) {
  Strategy strategy = strategy_of(way.ranks, 2, way.schedule);
  strategy.recompute = way.recompute;
  return strategy;
}

/// Batch norms and dropout see micro-batches: so does the reference.
TEST_P(Zoo, GradientsEqualPlainTraining) {
  const Batch batch = seeded_batch(GetParam(), 5);
  const Sequence reference = float64_model(GetParam());
  const double expected = plain_gradients(reference, cross_entropy(), batch, 2, 0);
  for (const Way& way : kWays) {
    Trainer trainer(float64_model(GetParam()), cross_entropy(), sgd(), strategy_for(way));
    EXPECT_NEAR(trainer.gradients(batch).loss, expected, 1e-12);
    EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-10)
        << way.ranks << " ranks, " << way.schedule;
  }
}

TEST_P(Zoo, BitsAreTheSameForEveryPipeline) {
  Tensors first;
  for (const Way& way : kWays) {
    Trainer trainer(float64_model(GetParam()), cross_entropy(), adam(), strategy_for(way));
    for (int step = 0; step < 2; ++step) trainer.step(seeded_batch(GetParam(), 5, step));
    if (first.empty()) first = state_of(trainer);
    EXPECT_THAT(different(trainer, first), testing::IsEmpty())
        << way.ranks << " ranks, " << way.schedule;
  }
}

TEST_P(Zoo, IsTheSameModelWhenItsLayersAreMadeLater) {
  const Sequence now = GetParam().make(false);
  Sequence later = GetParam().make(true);
  const Outline of_now = outline_of(now);
  const Outline of_later = outline_of(later);
  ASSERT_EQ(of_now.size(), of_later.size());
  for (std::size_t i = 0; i < of_now.size(); ++i) {
    EXPECT_EQ(now.layers()[i].name, later.layers()[i].name);
    EXPECT_EQ(now.layers()[i].options.cost, later.layers()[i].options.cost);
    ASSERT_EQ(of_now[i].size(), of_later[i].size());
    for (std::size_t k = 0; k < of_now[i].size(); ++k) {
      EXPECT_EQ(of_now[i][k].name, of_later[i][k].name);
      EXPECT_EQ(of_now[i][k].sizes, of_later[i][k].sizes);
      EXPECT_EQ(of_now[i][k].number, of_later[i][k].number);
    }
  }
  later.build_all();
  for (const auto& [name, parameter] : later.named_parameters())
    EXPECT_TRUE(parameter.isfinite().all().item<bool>()) << name;
}

TEST_P(Zoo, EveryLayerHasACostHint) {
  for (const Layer& layer : GetParam().make(true).layers())
    EXPECT_GT(layer.options.cost, 0) << layer.name;
}

TEST_P(Zoo, GivesALogitForEveryClass) {
  Trainer trainer(float64_model(GetParam()), cross_entropy(), sgd(), strategy_of(2, 2));
  std::vector<std::int64_t> shape = GetParam().output;
  shape.insert(shape.begin(), 3);
  EXPECT_EQ(trainer.predict(seeded_batch(GetParam(), 3).inputs)[0].sizes(),
            torch::IntArrayRef(shape));
}

INSTANTIATE_TEST_SUITE_P(Models, Zoo, testing::ValuesIn(families()),
                         [](const auto& test) { return test.param.name; });

TEST(EncoderDecoder, WhatFillsASourceUpChangesNothing) {
  const Family family = encoder_decoder_family();
  const Sequence model = float64_model(family);
  model.train(false);
  const Batch batch = seeded_batch(family, 2);
  const auto logits = plain_forward(model, batch.inputs, 0, 0)[0];
  const auto shorter = batch.inputs[0].slice(1, 0, 5);
  const auto same = plain_forward(model, {shorter, batch.inputs[1]}, 0, 0)[0];
  EXPECT_TRUE(torch::allclose(same, logits, 1e-12, 1e-12));
  auto other = batch.inputs[0].clone();
  other[0][4] = other[0][4].item<int>() % 10 + 1;
  const auto moved = (plain_forward(model, {other, batch.inputs[1]}, 0, 0)[0] - logits).abs();
  EXPECT_GT(moved[0].min().item<double>(), 0);  // all of the target sees all of the source
  EXPECT_EQ(moved[1].max().item<double>(), 0);
}

TEST(EncoderDecoder, ALaterTokenOfTheTargetDoesNotChangeEarlierLogits) {
  const Family family = encoder_decoder_family();
  const Sequence model = float64_model(family);
  model.train(false);
  const Batch batch = seeded_batch(family, 1);
  const auto logits = plain_forward(model, batch.inputs, 0, 0)[0];
  auto other = batch.inputs[1].clone();
  other[0][3] = (other[0][3] + 1) % 13;
  const auto moved = (plain_forward(model, {batch.inputs[0], other}, 0, 0)[0] - logits).abs()[0];
  EXPECT_EQ(moved.slice(0, 0, 3).max().item<double>(), 0);
  EXPECT_GT(moved.slice(0, 3).amax(1).min().item<double>(), 0);
}

TEST(UNet, SkipsCrossEverythingBetween) {
  const Sequence model = unet_family().make(true);
  std::vector<std::string> stashed;
  std::vector<std::string> popped;
  for (const Layer& layer : model.layers()) {
    for (const auto& name : layer.options.stash) stashed.push_back(name);
    for (const auto& name : layer.options.pop) popped.push_back(name);
  }
  EXPECT_THAT(stashed, testing::ElementsAre("skip1", "skip2"));
  EXPECT_THAT(popped, testing::ElementsAre("skip2", "skip1"));
}

TEST(ZooSizes, ThatDoNotFitAreRefusedInWords) {
  EXPECT_THAT(refusal([] { make_resnet({.blocks = {}}); }), HasSubstr("[resnet] no blocks"));
  EXPECT_EQ(refusal([] { make_resnet({.width = 0}); }), "[resnet] width = 0; use 1 or more");
  EXPECT_THAT(refusal([] { make_vgg({.widths = {8}}); }),
              HasSubstr("5 groups of convolutions, 1 widths"));
  EXPECT_THAT(refusal([] { make_vgg({.image = 16}); }), HasSubstr("halved 5 times"));
  EXPECT_EQ(refusal([] { make_amoebanet({.layers = 4}); }),
            "[amoebanet] layers = 4 is not a multiple of 3");
  EXPECT_EQ(refusal([] { make_amoebanet({.filters = 24}); }),
            "[amoebanet] filters = 24 is not a multiple of 16");
  EXPECT_EQ(refusal([] { make_unet({.width = 3}); }), "[unet] width = 3 is odd; use an even one");
  EXPECT_THAT(refusal([] { make_unet({.image = 32}); }), HasSubstr("cannot be halved 5 times"));
  EXPECT_THAT(refusal([] { make_encoder_decoder({.source_vocab = 3}); }),
              HasSubstr("target_vocab = 0; use 1 or more"));
  EXPECT_THAT(
      refusal([] { make_encoder_decoder({.heads = 3, .source_vocab = 3, .target_vocab = 3}); }),
      HasSubstr("dim = 1024 is not a multiple of heads = 3"));
}

}  // namespace
}  // namespace pipewright
