// Models of clicks: over two stages they learn what was planted, which no sum over single features
// can; and they have the gradients of the plain model.

#include "pipewright/models/click_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/data/metrics.h"
#include "pipewright/train/trainer.h"
#include "tests/models/click_data.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

constexpr double kStatedArea = 0.80;  // 0.87 is the most that any model can have

class ClickStages : public testing::TestWithParam<std::string> {};

std::unique_ptr<torch::optim::Optimizer> adam(const Parameters& p) {
  return std::make_unique<torch::optim::Adam>(p, 0.01);
}

TEST_P(ClickStages, LearnTheInteractions) {
  torch::manual_seed(1);
  Trainer trainer(make_clicks_model(GetParam(), {}), binary_cross_entropy(), adam,
                  {.ranks = 2, .micro_batches = 2, .threads_per_rank = 1});
  for (int i = 0; i < 160; ++i) {
    SampleBatch batch = click_rows(i * 256, 256);
    trainer.step({std::move(batch.inputs), std::move(batch.targets)});
  }
  const SampleBatch held = click_rows(1'000'000, 2000);
  const double area = *area_under_curve(trainer.predict(held.inputs)[0], held.targets[0]);
  RecordProperty("area", std::to_string(area));
  EXPECT_GT(area, kStatedArea);
  // What single features tell.
  const GeneratedClicks log(click_options(1'000'000, 2000));
  const torch::Tensor single = torch::empty({2000}, torch::kDouble);
  for (std::int64_t i = 0; i < 2000; ++i)
    single.data_ptr<double>()[i] = log.probability_without_interactions(log.row(i));
  EXPECT_LT(*area_under_curve(single, held.targets[0]), kStatedArea - 0.1);
}

TEST_P(ClickStages, HaveTheGradientsOfThePlainModel) {
  torch::manual_seed(1);
  Sequence model = make_clicks_model(GetParam(), {.crosses = 20});
  for (const Layer& layer : model.layers()) layer.module->to(torch::kDouble);
  SampleBatch rows = click_rows(0, 7);
  const Batch batch{.inputs = {rows.inputs[0].to(torch::kDouble), rows.inputs[1]},
                    .targets = {rows.targets[0].to(torch::kDouble)}};
  torch::binary_cross_entropy_with_logits(run_layers(model, batch.inputs), batch.targets[0])
      .backward();
  Tensors expected;
  for (const auto& [name, parameter] : model.named_parameters()) {
    expected.push_back(parameter.grad().clone());
    parameter.mutable_grad() = torch::Tensor();
  }
  Trainer trainer(model, binary_cross_entropy(), adam, {.ranks = 2, .micro_batches = 3});
  trainer.gradients(batch);
  std::size_t i = 0;
  for (const auto& [name, parameter] : model.named_parameters())
    EXPECT_TRUE(torch::allclose(parameter.grad(), expected[i++], 1e-10, 1e-13)) << name;
}

INSTANTIATE_TEST_SUITE_P(All, ClickStages, testing::ValuesIn(click_model_names()),
                         [](const auto& of) { return of.param; });

TEST(ClickModels, RefuseSizesThatDoNotFit) {
  const ClickModelSizes sizes{.numeric = 3, .fields = 4, .buckets = 5};
  const auto with = [&](auto change) {
    ClickModelSizes other = sizes;
    change(&other);
    return other;
  };
  EXPECT_THAT(refusal([&] { make_deepfm(with([](auto* s) { s->dim = 0; })); }),
              HasSubstr("[deepfm]"));
  EXPECT_THAT(refusal([&] { make_din(with([](auto* s) { s->history = 4; })); }),
              HasSubstr("history = 4 of 4 fields; use 1 to 3"));
  EXPECT_THAT(refusal([&] { make_wide_deep(with([](auto* s) { s->crosses = -1; })); }),
              HasSubstr("crosses = -1"));
  const Sequence model = make_dlrm(sizes);
  EXPECT_THAT(refusal([&] {
                run_layers(model, {torch::zeros({2, 3}), torch::zeros({2, 5}, torch::kLong)});
              }),
              HasSubstr("the model takes (rows, 4)"));
}

}  // namespace
}  // namespace pipewright
