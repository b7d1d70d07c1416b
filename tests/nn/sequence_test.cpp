#include "pipewright/nn/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

struct TwoInTwoOut : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor a, torch::Tensor b) {
    return {a + b, a - b};
  }
};
struct Many : torch::nn::Module {
  Tensors forward(const Tensors& x) { return {x[0], x[0], x[0]}; }
};

TEST(Sequence, TakesModulesOfEveryForward) {
  Sequence model;
  model.add("fc", torch::nn::Linear(3, 4));
  model.add("two", std::make_shared<TwoInTwoOut>());
  model.add("many", std::make_shared<Many>());
  model.add("double", [](torch::Tensor x) { return 2 * x; });
  const auto x = torch::ones({2, 3});
  EXPECT_EQ(model.layers()[0].forward({x}).size(), 1U);
  const Tensors two = model.layers()[1].forward({x, x});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_TRUE(two[0].equal(2 * x));
  EXPECT_EQ(model.layers()[2].forward({x}).size(), 3U);
  EXPECT_TRUE(model.layers()[3].forward({x})[0].equal(2 * x));
  EXPECT_THAT(refusal([&] { model.layers()[1].forward({x}); }),
              HasSubstr("layer 'two' got 1 tensors"));
}

TEST(Sequence, TakesASequentialAsItIs) {
  torch::nn::Sequential modules(torch::nn::Linear(3, 4), torch::nn::ReLU(),
                                torch::nn::Linear(4, 2));
  const Sequence model = Sequence::from(modules);
  ASSERT_EQ(model.size(), 3U);
  Tensors x = {torch::ones({2, 3})};
  for (const Layer& layer : model.layers()) x = layer.forward(x);
  EXPECT_TRUE(x[0].equal(modules->forward(torch::ones({2, 3}))));
  EXPECT_EQ(model.named_parameters().size(), 4U);
  EXPECT_EQ(model.named_parameters()[0].first, "0.weight");
}

TEST(Sequence, NamesATiedParameterOnce) {
  torch::nn::Linear shared(3, 3);
  Sequence model;
  model.add("a", shared).add("b", shared);
  EXPECT_EQ(model.named_parameters().size(), 2U);
}

TEST(Sequence, FindsLayersThatWriteIntoTheirInput) {
  Sequence model;
  model.add("plain", torch::nn::ReLU());
  model.add("in_place", torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  EXPECT_FALSE(model.layers()[0].options.in_place);
  EXPECT_TRUE(model.layers()[1].options.in_place);
}

TEST(Sequence, RefusesMisusedSkips) {
  Sequence model;
  model.add("a", std::make_shared<TwoInTwoOut>(), {.stash = {"skip"}});
  EXPECT_THAT(refusal([&] { model.add("b", torch::nn::ReLU(), {.pop = {"other"}}); }),
              HasSubstr("layer 'b' pops 'other', which no layer before it stashes"));
  EXPECT_THAT(refusal([&] { model.add("b", torch::nn::ReLU(), {.stash = {"skip"}}); }),
              HasSubstr("is stashed already"));
  EXPECT_THAT(refusal([&] { model.check(); }),
              HasSubstr("'skip' is stashed, but no layer pops it"));
  model.add("c", std::make_shared<TwoInTwoOut>(), {.pop = {"skip"}});
  EXPECT_NO_THROW(model.check());
  EXPECT_THAT(refusal([&] { model.add("d", torch::nn::ReLU(), {.pop = {"skip"}}); }),
              HasSubstr("was popped already"));
}

TEST(Sequence, RefusesNamesAndGuardsThatMakeNoSense) {
  Sequence model;
  EXPECT_THAT(refusal([&] { model.check(); }), HasSubstr("no layers"));
  EXPECT_THAT(refusal([&] { model.add("", torch::nn::ReLU()); }), HasSubstr("needs a name"));
  model.add("a", torch::nn::ReLU());
  EXPECT_THAT(refusal([&] { model.add("a", torch::nn::ReLU()); }),
              HasSubstr("there is a layer 'a' already"));
  {
    const auto guard = model.stage(1);
    model.add("b", torch::nn::ReLU());
    EXPECT_THAT(refusal([&] { const auto inner = model.stage(2); }), HasSubstr("do not nest"));
  }
  const auto guard = model.stage(0);
  EXPECT_THAT(refusal([&] { model.add("c", torch::nn::ReLU()); }), HasSubstr("stages go up"));
  EXPECT_EQ(model.layers()[1].stage, 1);
  EXPECT_FALSE(model.layers()[0].stage.has_value());
}

TEST(Sequence, TakesASequentialAsOneLayer) {
  torch::nn::Sequential inner(torch::nn::Linear(3, 4), torch::nn::ReLU(), torch::nn::Linear(4, 2));
  Sequence model;
  model.add("inner", inner);
  const auto x = torch::randn({5, 3});
  EXPECT_TRUE(model.layers()[0].forward({x})[0].equal(inner->forward(x)));
  EXPECT_EQ(model.named_parameters().size(), 4U);
}

}  // namespace
}  // namespace pipewright
