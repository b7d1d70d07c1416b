#include "pipewright/models/bert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/nn/loss.h"
#include "pipewright/train/trainer.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

BertOptions small() {
  return {.layers = 2, .dim = 16, .heads = 4, .seq = 12, .vocab = 23, .dropout = 0};
}

Batch sentences(int rows) {
  torch::manual_seed(2);
  return {{torch::randint(23, {rows, 12}), torch::randint(12, {rows, 3})},
          {torch::randint(23, {rows, 3})}};
}

Strategy over(int ranks) {
  Strategy strategy;
  strategy.ranks = ranks;
  strategy.micro_batches = 2;
  return strategy;
}

std::unique_ptr<torch::optim::Optimizer> sgd(const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, 0.1);
}

Trainer trainer_of(int ranks) {
  torch::manual_seed(1);
  return {make_bert(small()), cross_entropy(), sgd, over(ranks)};
}

TEST(Bert, HasThreeLayersABlock) {
  const Sequence model = make_bert(small());
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) names.push_back(layer.name);
  EXPECT_THAT(names, testing::ElementsAre("embed", "attention0", "up0", "down0", "attention1",
                                          "up1", "down1", "head"));
}

TEST(Bert, HasTheParametersOfItsSizes) {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : make_bert(small()).named_parameters())
    count += parameter.numel();
  const std::int64_t block = 12 * 16 * 16 + 13 * 16;
  EXPECT_EQ(count, (23 + 12 + 2 + 2) * 16 + 2 * block + (16 + 3) * 16 + 23);
}

/// Only masked positions count: every row's own.
TEST(Bert, PredictsTheMaskedPositions) {
  Trainer trainer = trainer_of(1);
  const Batch batch = sentences(4);
  const auto logits = trainer.predict(batch.inputs)[0];
  EXPECT_EQ(logits.sizes(), torch::IntArrayRef({4, 3, 23}));
  const auto order = torch::tensor({2, 0, 1});
  const auto turned = trainer.predict({batch.inputs[0], batch.inputs[1].index_select(1, order)})[0];
  EXPECT_TRUE(torch::allclose(turned, logits.index_select(1, order), 1e-5, 1e-6));
}

TEST(Bert, TrainsTheSameOverAPipeline) {
  Trainer one = trainer_of(1);
  Trainer three = trainer_of(3);
  for (int step = 0; step < 3; ++step) {
    const Batch batch = sentences(4);
    EXPECT_EQ(one.step(batch).loss, three.step(batch).loss);
  }
}

TEST(Bert, RefusesSizesThatDoNotFit) {
  const auto why = [](auto change) {
    BertOptions options = small();
    change(options);
    return refusal([&] { make_bert(options); });
  };
  EXPECT_THAT(why([](auto& o) { o.layers = 0; }), HasSubstr("[bert] layers = 0; use 1 or more"));
  EXPECT_THAT(why([](auto& o) { o.heads = 5; }), HasSubstr("not a multiple of heads = 5"));
  EXPECT_THAT(why([](auto& o) { o.dropout = 1; }), HasSubstr("dropout = 1"));
  Trainer trainer = trainer_of(1);
  const Batch longer{{torch::zeros({2, 13}, torch::kLong), torch::zeros({2, 1}, torch::kLong)}};
  EXPECT_THAT(refusal([&] { trainer.predict(longer.inputs); }),
              HasSubstr("a sequence of 13 tokens, but the model was made for up to 12"));
}

}  // namespace
}  // namespace pipewright
