// Layers that do the same are planned with the same times.

#include "pipewright/profile/alike.h"

#include <gtest/gtest.h>

namespace pipewright {
namespace {

/// Linear, Linear, Tanh, Linear, Linear of other sizes, Tanh, Linear, Linear.
Sequence a_model() {
  Sequence model;
  for (const int width : {4, 4, 0, 4, 6, 0, 4, 4}) {
    const std::string name = "layer" + std::to_string(model.size());
    if (width == 0) model.add(name, torch::nn::Tanh());
    if (width > 0) model.add(name, torch::nn::Linear(4, width));
  }
  return model;
}

std::vector<LayerCost> costs_of(const std::vector<double>& forwards) {
  std::vector<LayerCost> costs;
  for (const double forward : forwards) {
    LayerCost cost;
    cost.forward_seconds = forward;
    cost.backward_seconds = 2 * forward;
    cost.backward_input_seconds = forward / 2;
    cost.backward_weight_seconds = 3 * forward;
    cost.step_seconds = forward / 4;
    costs.push_back(cost);
  }
  return costs;
}

std::vector<double> forwards_of(const std::vector<LayerCost>& costs) {
  std::vector<double> forwards;
  for (const LayerCost& cost : costs) forwards.push_back(cost.forward_seconds);
  return forwards;
}

TEST(ShareTimes, OfLayersThatAreAlikeTheirMean) {
  auto costs = costs_of({1, 10, 4, 12, 20, 5, 11, 1});
  share_times_of_alike(a_model(), &costs);
  EXPECT_EQ(forwards_of(costs), (std::vector<double>{1, 11, 4.5, 11, 20, 4.5, 11, 1}));
  EXPECT_DOUBLE_EQ(costs[1].backward_seconds, 22);
  EXPECT_DOUBLE_EQ(costs[3].backward_input_seconds, 5.5);
  EXPECT_DOUBLE_EQ(costs[6].backward_weight_seconds, 33);
  EXPECT_DOUBLE_EQ(costs[6].step_seconds, 2.75);
}

TEST(ShareTimes, BytesTellLayersApart) {
  const std::vector<double> own = {1, 10, 4, 12, 20, 5, 11, 1};
  for (const auto bytes :
       {&LayerCost::output_bytes, &LayerCost::saved_bytes, &LayerCost::forward_temp_bytes,
        &LayerCost::backward_temp_bytes, &LayerCost::weight_half_bytes}) {
    auto costs = costs_of(own);
    costs[3].*bytes = 1;
    share_times_of_alike(a_model(), &costs);
    EXPECT_EQ(forwards_of(costs), (std::vector<double>{1, 10.5, 4.5, 12, 20, 4.5, 10.5, 1}));
  }
}

TEST(ShareTimes, FrozenLayersAreOfTheirOwnKind) {
  const Sequence model = a_model();
  model.layers()[3].module->parameters()[0].set_requires_grad(false);
  auto costs = costs_of({1, 10, 4, 12, 20, 5, 11, 1});
  share_times_of_alike(model, &costs);
  EXPECT_DOUBLE_EQ(costs[3].forward_seconds, 12);
  EXPECT_DOUBLE_EQ(costs[1].forward_seconds, 10.5);
}

TEST(ShareTimes, OneThatIsFarFromTheOthersKeepsItsOwn) {
  auto costs = costs_of({1, 10, 4, 20, 20, 5, 11, 1});
  share_times_of_alike(a_model(), &costs);
  EXPECT_DOUBLE_EQ(costs[3].forward_seconds, 20);
  EXPECT_DOUBLE_EQ(costs[1].forward_seconds, 10.5);
  EXPECT_DOUBLE_EQ(costs[6].forward_seconds, 10.5);
}

TEST(ShareTimes, LayersWithoutAModuleAndShortModelsAreLeftAlone) {
  Sequence model;
  const auto twice = [](const torch::Tensor& x) { return 2 * x; };
  for (int i = 0; i < 4; ++i) model.add("f" + std::to_string(i), twice);
  auto costs = costs_of({1, 2, 2.1, 1});
  share_times_of_alike(model, &costs);
  EXPECT_EQ(forwards_of(costs), (std::vector<double>{1, 2, 2.1, 1}));
  std::vector<LayerCost> none;
  share_times_of_alike(Sequence(), &none);
}

}  // namespace
}  // namespace pipewright
