// Models of clicks on lanes: they learn what was planted, and a linear model cannot.

#include "pipewright/models/click_models.h"

#include <gtest/gtest.h>

#include <numeric>

#include "pipewright/data/click_source.h"
#include "pipewright/data/metrics.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/micro/auto_micro_batch.h"
#include "tests/models/click_data.h"

namespace pipewright {
namespace {

class ClickModels : public testing::TestWithParam<std::string> {};

TEST_P(ClickModels, LearnOnLanes) {
  torch::manual_seed(1);
  Sequence model = make_clicks_model(GetParam(), {.sparse = true});
  AutoMicroBatch step(model, binary_cross_entropy(), {.num = 4, .lanes = 2});
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.push_back(parameter);
  torch::optim::Adagrad optimizer(parameters, torch::optim::AdagradOptions(0.05));
  for (int i = 0; i < 120; ++i) {
    optimizer.zero_grad();
    const SampleBatch batch = click_rows(i * 256, 256);
    step.backward({.inputs = batch.inputs, .targets = batch.targets});
    optimizer.step();
  }
  const torch::NoGradGuard no_grad;
  const SampleBatch held = click_rows(1'000'000, 2000);
  const double area = *area_under_curve(run_layers(model, held.inputs), held.targets[0]);
  RecordProperty("area", std::to_string(area));
  EXPECT_GT(area, 0.80) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(All, ClickModels, testing::ValuesIn(click_model_names()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace pipewright
