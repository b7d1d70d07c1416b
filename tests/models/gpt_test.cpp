#include "pipewright/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pipewright/nn/loss.h"
#include "pipewright/train/layout.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

GptOptions small() {
  return {.layers = 3, .dim = 16, .heads = 4, .seq = 12, .vocab = 23, .dropout = 0, .tied = true};
}

Sequence make_small(const GptOptions& options) {
  torch::manual_seed(3);
  return make_gpt(options);
}

torch::Tensor logits_of(const Sequence& model, const torch::Tensor& tokens) {
  Tensors x = {tokens};
  for (const Layer& layer : model.layers()) x = layer.forward(x);
  return x[0];
}

std::int64_t num_parameters(const Sequence& model) {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : model.named_parameters()) count += parameter.numel();
  return count;
}

TEST(Gpt, HasNamedLayers) {
  const Sequence model = make_small(small());
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) names.push_back(layer.name);
  EXPECT_THAT(names, testing::ElementsAre("embed", "block0", "block1", "block2", "norm", "head"));
}

TEST(Gpt, GivesLogitsForEveryTokenOfAnyLength) {
  const Sequence model = make_small(small());
  EXPECT_EQ(logits_of(model, torch::zeros({2, 12}, torch::kInt64)).sizes(),
            torch::IntArrayRef({2, 12, 23}));
  EXPECT_EQ(logits_of(model, torch::zeros({5, 1}, torch::kInt64)).sizes(),
            torch::IntArrayRef({5, 1, 23}));
}

TEST(Gpt, EveryParameterHasAGradientOfItsShape) {
  for (const bool tied : {false, true}) {
    GptOptions options = small();
    options.tied = tied;
    const Sequence model = make_small(options);
    const auto tokens = torch::randint(23, {4, 12});
    const LossValue loss = cross_entropy().value({logits_of(model, tokens)}, {tokens});
    loss.sum.backward();
    for (const auto& [name, parameter] : model.named_parameters()) {
      ASSERT_TRUE(parameter.grad().defined()) << name;
      EXPECT_EQ(parameter.grad().sizes(), parameter.sizes()) << name;
      EXPECT_GT(parameter.grad().abs().max().item<double>(), 0) << name;
    }
  }
}

TEST(Gpt, ALaterTokenDoesNotChangeEarlierLogits) {
  const Sequence model = make_small(small());
  const auto tokens = torch::randint(23, {2, 12});
  const auto logits = logits_of(model, tokens);
  for (int changed = 0; changed < 12; ++changed) {
    auto other = tokens.clone();
    other.select(1, changed).add_(1).remainder_(23);
    const auto moved = (logits_of(model, other) - logits).abs().amax({0, 2});  // by position
    EXPECT_EQ(moved.slice(0, 0, changed).sum().item<double>(), 0) << changed;
    EXPECT_GT(moved.slice(0, changed).min().item<double>(), 0) << changed;
  }
}

TEST(Gpt, PositionsMatter) {
  const Sequence model = make_small(small());
  const auto logits = logits_of(model, torch::full({1, 6}, 7, torch::kInt64));
  EXPECT_FALSE(logits[0][0].equal(logits[0][1]));
}

TEST(Gpt, ATiedWeightCountsOnce) {
  GptOptions options = small();
  const Sequence tied = make_small(options);
  options.tied = false;
  const Sequence untied = make_small(options);
  EXPECT_EQ(num_parameters(untied) - num_parameters(tied), 23 * 16);
  EXPECT_EQ(tied.layers().front().module->parameters()[0].unsafeGetTensorImpl(),
            tied.layers().back().module->parameters()[0].unsafeGetTensorImpl());
  const std::int64_t block =
      12 * 16 * 16 + (3 + 1 + 4 + 1) * 16 + 4 * 16;  // weights, biases, norms
  EXPECT_EQ(num_parameters(tied), 23 * 16 + 12 * 16 + 3 * block + 2 * 16);
}

TEST(Gpt, StartsNearAUniformGuess) {
  for (const bool tied : {false, true}) {
    GptOptions options = small();
    options.dim = 64;
    options.tied = tied;
    const Sequence model = make_small(options);
    const auto tokens = torch::randint(23, {16, 12});
    const auto targets = torch::randint(23, {16, 12});
    const LossValue loss = cross_entropy().value({logits_of(model, tokens)}, {targets});
    EXPECT_NEAR(loss.sum.item<double>() / static_cast<double>(targets.numel()), std::log(23), 0.1);
  }
}

TEST(Gpt, BranchesStartSmallerTheDeeperTheModel) {
  GptOptions options = small();
  options.dim = 128;
  options.layers = 8;
  const Sequence model = make_small(options);
  for (const auto& [name, parameter] : model.named_parameters()) {
    const double deviation = parameter.std().item<double>();
    if (name.ends_with("proj.weight") || name.ends_with("down.weight")) {
      EXPECT_NEAR(deviation, 0.02 / 4, 0.0005) << name;
    } else if (name.ends_with("qkv.weight") || name.ends_with("up.weight")) {
      EXPECT_NEAR(deviation, 0.02, 0.002) << name;
    }
  }
}

TEST(Gpt, DropoutIsForTrainingAlone) {
  GptOptions options = small();
  options.dropout = 0.5;
  const Sequence model = make_small(options);
  const auto tokens = torch::randint(23, {2, 12});
  EXPECT_FALSE(logits_of(model, tokens).equal(logits_of(model, tokens)));
  model.train(false);
  EXPECT_TRUE(logits_of(model, tokens).equal(logits_of(model, tokens)));
}

TEST(Gpt, EveryLayerHasACostHint) {
  const Sequence model = make_small(small());
  for (const Layer& layer : model.layers()) EXPECT_GT(layer.options.cost, 0) << layer.name;
}

TEST(Gpt, AWideVocabularyPullsTheCutTowardsTheHead) {
  // A head as heavy as four blocks: the embedding, as large as it, has no work to do.
  GptOptions options{.layers = 8, .dim = 16, .heads = 2, .seq = 8, .vocab = 4 * 12 * 16};
  options.tied = false;
  Strategy strategy;
  strategy.ranks = 2;
  const std::vector<int> sizes =
      stage_sizes(make_small(options), outline_of(make_small(options)), strategy, 2);
  EXPECT_THAT(sizes, testing::ElementsAre(7, 4));  // embed and 6 blocks; 2 blocks, norm and head
}

TEST(Gpt, RefusesSizesThatDoNotFit) {
  const auto refused = [](auto change) {
    GptOptions options = small();
    change(options);
    return refusal([&] { make_gpt(options); });
  };
  EXPECT_EQ(refused([](auto& o) { o.heads = 3; }), "[gpt] dim = 16 is not a multiple of heads = 3");
  EXPECT_EQ(refused([](auto& o) { o.layers = 0; }), "[gpt] layers = 0; use 1 or more");
  EXPECT_EQ(refused([](auto& o) { o.dim = -4; }), "[gpt] dim = -4; use 1 or more");
  EXPECT_EQ(refused([](auto& o) { o.heads = 0; }), "[gpt] heads = 0; use 1 or more");
  EXPECT_EQ(refused([](auto& o) { o.seq = 0; }), "[gpt] seq = 0; use 1 or more");
  EXPECT_EQ(refused([](auto& o) { o.vocab = 0; }), "[gpt] vocab = 0; use 1 or more");
  EXPECT_EQ(refused([](auto& o) { o.dropout = 1; }), "[gpt] dropout = 1; use 0 (off) to below 1");
}

TEST(Gpt, RefusesTokensThatDoNotFit) {
  const Sequence model = make_small(small());
  EXPECT_EQ(refusal([&] {
              logits_of(model, torch::zeros({1, 13}, torch::kInt64));
            }),
            "[gpt] a sequence of 13 tokens, but the model was made for up to 12");
  EXPECT_EQ(refusal([&] { logits_of(model, torch::zeros({5}, torch::kInt64)); }),
            "[gpt] tokens have 1 dimensions; they must be (rows, length)");
}

}  // namespace
}  // namespace pipewright
