#include "pipewright/graph/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pipewright/graph/batch_analysis.h"
#include "tests/graph/models.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// One after the other, on this thread.
Tensors run_layers(const Sequence& model, Tensors x) {
  std::map<std::string, torch::Tensor> skips;
  for (const Layer& layer : model.layers()) {
    for (const auto& name : layer.options.pop) x.push_back(skips.extract(name).mapped());
    x = layer.forward(x);
    const auto& stash = layer.options.stash;
    for (std::size_t k = 0; k < stash.size(); ++k) skips[stash[k]] = x[x.size() - stash.size() + k];
    x.resize(x.size() - stash.size());
  }
  return x;
}

std::vector<std::string> names_of(const Sequence& model) {
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) names.push_back(layer.name);
  return names;
}

Graph scripted(const std::string& body) {
  torch::jit::Module module("Model");
  torch::manual_seed(2);
  module.register_parameter("weight", torch::randn({4, 4}, torch::kDouble), false);
  module.register_buffer("table", torch::randn({4, 4}, torch::kDouble));
  module.define("def forward(self, x):\n  " + body + "\n");
  return Graph::from(module);
}

class Cut : public testing::TestWithParam<std::string> {};

TEST_P(Cut, LayersTogetherComputeTheGraphBitForBit) {
  const Tensors inputs = make_inputs(GetParam(), 5);
  for (int most = 0; most <= 6; ++most) {
    Graph graph = load_model(GetParam());
    Graph whole = load_model(GetParam());
    const Sequence model = cut(graph, {.most_crossing = most}).model;
    model.check();
    for (const bool training : {true, false}) {
      model.train(training);
      whole.train(training);
      const Tensors expected = whole.forward(inputs);
      const Tensors got = run_layers(model, inputs);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << most;
    }
  }
}

TEST_P(Cut, EveryParameterIsInALayer) {
  const Graph graph = load_model(GetParam());
  EXPECT_EQ(cut(graph).model.named_parameters().size(), graph.parameters().size());
}

INSTANTIATE_TEST_SUITE_P(All, Cut, testing::ValuesIn(all_models()),
                         [](const auto& test) { return test.param; });

TEST(CutPoints, ResidualNetworkIsCutBetweenBlocks) {
  const CutModel made = cut(load_model("resnet"), {.most_crossing = 1});
  EXPECT_THAT(names_of(made.model),
              ElementsAre("stem", "blocks_0_conv1", "blocks_1_conv1", "blocks_2_conv1", "head"));
  for (const CutPoint& point : made.points) EXPECT_EQ(point.crossing, 1) << point.layer;
}

TEST(CutPoints, MoreCrossingGivesMoreLayers) {
  const Graph graph = load_model("resnet");
  EXPECT_GT(cut(graph, {.most_crossing = 2}).model.size(),
            cut(graph, {.most_crossing = 1}).model.size());
  EXPECT_GE(cut(graph, {.wanted_layers = 8}).model.size(), 8U);
  EXPECT_EQ(cut(graph, {.wanted_layers = 5}).model.size(), 5U);
}

TEST(CutPoints, UNetsSkipsAreStashedAndPopped) {
  const Sequence model = cut(load_model("unet")).model;
  EXPECT_EQ(model.size(), 7U);
  std::size_t stashed = 0;
  for (const Layer& layer : model.layers()) stashed += layer.options.stash.size();
  // The inner skip is read by each layer up to the one that joins it, and so handed on; the outer
  // one is stashed once the layer after its maker has read it.
  EXPECT_EQ(stashed, 1U);
}

TEST(CutPoints, LateInputWaitsAsASkip) {
  const Sequence model = cut(load_model("multi_input")).model;
  EXPECT_THAT(names_of(model), ElementsAre("left", "right", "middle", "head"));
  EXPECT_EQ(model.layers()[0].options.stash, model.layers()[2].options.pop);
  EXPECT_EQ(model.layers()[0].options.stash.size(), 1U);
}

TEST(CutPoints, LoopsAndBranchesStayInOneLayer) {
  EXPECT_THAT(names_of(cut(load_model("control_flow")).model),
              ElementsAre("enter", "cell", "leave"));
}

TEST(CutPoints, TiedWeightIsTheSameTensorInBothLayers) {
  const Graph graph = load_model("tied");
  const Sequence model = cut(graph).model;
  int uses = 0;
  for (const Layer& layer : model.layers()) {
    for (const auto& parameter : layer.module->parameters())
      uses += parameter.is_same(graph.parameters()[0].tensor) ? 1 : 0;
  }
  EXPECT_EQ(graph.parameters()[0].name, "embed.weight");
  EXPECT_EQ(uses, 2);
}

void expect_same(const Graph& graph, std::size_t num_layers) {
  const auto x = torch::randn({3, 4}, torch::kDouble);
  const Sequence model = cut(graph).model;
  EXPECT_EQ(model.size(), num_layers);
  EXPECT_TRUE(run_layers(model, {x.clone()})[0].equal(graph.forward({x.clone()})[0]));
}

TEST(CutPoints, NumbersCrossAsTensors) {
  expect_same(scripted("n = x.size(0)\n  y = torch.mm(x, self.weight)\n"
                       "  z = torch.mm(y, self.weight)\n  return z.view(n, 2, 2)"),
              2);
}

TEST(CutPoints, ListsDoNotCross) {
  expect_same(scripted("s = x.size()\n  y = torch.mm(x, self.weight)\n"
                       "  z = torch.mm(y, self.weight)\n  return z.view(s)"),
              1);
}

TEST(CutPoints, WhatIsWrittenIntoStaysInOneLayer) {
  expect_same(scripted("y = torch.mm(x, self.weight)\n  part = y[:, :2]\n"
                       "  z = torch.mm(y, self.weight)\n  part.add_(1.0)\n"
                       "  return torch.mm(z, self.weight) + y"),
              2);
}

TEST(CutPoints, WhatDependsOnParametersAloneIsComputedWhereItIsNeeded) {
  const Graph graph = scripted(
      "w = self.weight.t() + self.table\n  y = torch.mm(x, w)\n"
      "  return torch.mm(torch.tanh(y), w)");
  expect_same(graph, 2);
  const Sequence model = cut(graph).model;
  for (const Layer& layer : model.layers()) EXPECT_EQ(layer.module->parameters().size(), 1U);
}

TEST(CutPoints, ANormThatIsCalledTwiceStaysInOneLayer) {
  torch::jit::Module module("Model");
  module.register_parameter("weight", torch::randn({4, 4}, torch::kDouble), false);
  module.register_buffer("mean", torch::zeros({4}, torch::kDouble));
  module.register_buffer("var", torch::ones({4}, torch::kDouble));
  module.register_buffer("count", torch::zeros({}, torch::kLong));
  module.define(
      "def norm(self, x):\n"
      "  self.count.add_(1)\n"
      "  return torch.batch_norm(x, None, None, self.mean, self.var, True, 0.1, 1e-5, False)\n"
      "def forward(self, x):\n"
      "  x = torch.mm(self.norm(torch.mm(x, self.weight)), self.weight)\n"
      "  return torch.mm(self.norm(torch.mm(x, self.weight)), self.weight)\n");
  const Graph graph = Graph::from(module);
  ASSERT_EQ(graph.norms().size(), 1U);
  EXPECT_EQ(cut(graph).model.size(), 3U);  // the first product, both norms, the last product
}

TEST(CutPoints, RefusesWhatCannotBeTrained) {
  EXPECT_THAT(refusal([] { cut(scripted("return x + self.table")); }),
              AllOf(HasSubstr("the graph has no parameters"), HasSubstr("torch.jit.freeze")));
  EXPECT_THAT(refusal([] { cut(load_model("mlp"), {.most_crossing = -1}); }),
              HasSubstr("cannot cut with most_crossing -1"));
}

std::string loss_refusal(const std::string& name) {
  const Graph graph = load_model(name);
  const BatchReport report = analyse_batch(graph, make_inputs(name, 5));
  return refusal([&] { cut_with_loss(graph, report); });
}

TEST(CutWithLoss, RefusesWhatIsNoLoss) {
  EXPECT_THAT(loss_refusal("mlp"), HasSubstr("it carries the batch in dimension 0"));
  EXPECT_THAT(loss_refusal("multi_output"), HasSubstr("it has 2 outputs, not one"));
  EXPECT_THAT(loss_refusal("summed_loss"),
              AllOf(HasSubstr("it is a sum over the batch"), HasSubstr("divide_sum")));
  EXPECT_THAT(loss_refusal("two_towers"), HasSubstr("it mixes samples"));
}

TEST(CutWithLoss, RefusesAMicroBatchOfWhichNothingCounts) {
  const Graph graph = load_model("masked_loss");
  Tensors inputs = make_inputs("masked_loss", 5);
  const CutLoss made = cut_with_loss(graph, analyse_batch(graph, inputs));
  inputs[2].zero_();
  const Tensors outputs = run_layers(made.model, inputs);
  EXPECT_THAT(refusal([&] { made.loss.value(outputs, {inputs[0]}); }),
              HasSubstr("nothing of a micro-batch counts in its loss"));
}

}  // namespace
}  // namespace pipewright
