#include "pipewright/profile/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/nn/linear.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

constexpr std::int64_t kRows = 64;
constexpr std::int64_t kColumns = 256;
constexpr std::int64_t kTensor = kRows * kColumns * 4;

Profile profile_of(const Sequence& model) {
  const auto x = torch::randn({kRows, kColumns});
  return measure_profile(model, mean_squared_error(), {x}, {torch::zeros_like(x)});
}

TEST(MeasureProfile, KnowsTheBytesOfKnownLayers) {
  Sequence model;
  model.add("tanh", torch::nn::Tanh());
  model.add("fc", torch::nn::Linear(kColumns, kColumns));
  model.add("double", [](torch::Tensor x) { return x + x; });
  model.add("gelu", torch::nn::GELU());
  model.add("view", [](torch::Tensor x) { return x.view({kRows, kColumns}); });
  model.add("last", torch::nn::Tanh());
  const Profile profile = profile_of(model);
  ASSERT_EQ(profile.layers.size(), 6U);
  const LayerCost& fc = profile.layers[1];
  EXPECT_EQ(fc.name, "fc");
  EXPECT_EQ(fc.output_bytes, kTensor);
  EXPECT_EQ(fc.saved_bytes, kTensor);  // its output; what it needs is its input
  EXPECT_EQ(fc.parameter_bytes, 4 * kColumns * (kColumns + 1));
  EXPECT_EQ(fc.gradient_bytes, fc.parameter_bytes);
  EXPECT_GE(fc.backward_temp_bytes, kTensor + 4 * kColumns * kColumns);  // both gradients
  EXPECT_LE(fc.backward_temp_bytes, kTensor + 4 * kColumns * (2 * kColumns + 4));
  EXPECT_EQ(profile.layers[2].saved_bytes, kTensor);
  EXPECT_EQ(profile.layers[2].forward_temp_bytes, 0);
  EXPECT_EQ(profile.layers[4].output_bytes, kTensor);  // handed on, not made
  EXPECT_EQ(profile.layers[4].saved_bytes, kTensor);
  std::vector<std::int64_t> idle;
  for (const LayerCost& layer : profile.layers) idle.push_back(layer.idle_bytes);
  // tanh's is read by both; nobody reads fc's; gelu reads its input; the view moves on gelu's,
  // which nobody reads, nor the view's, for the last tanh reads its own.
  EXPECT_EQ(idle, (std::vector<std::int64_t>{0, kTensor, 0, kTensor, kTensor, 0}));
  std::vector<std::int64_t> gone;
  for (const LayerCost& layer : profile.layers) gone.push_back(layer.gone_bytes);
  // The first has no backward, fc reads what it made; gelu reads double's.
  EXPECT_EQ(gone, (std::vector<std::int64_t>{kTensor, 0, kTensor, 0, 0, 0}));
  EXPECT_GE(profile.layers[5].saved_bytes, kTensor);  // and the loss's
  EXPECT_EQ(profile.input_bytes, kTensor);
  EXPECT_EQ(profile.micro_batch_size, kRows);
  for (const LayerCost& layer : profile.layers) {
    EXPECT_GT(layer.forward_seconds, 0) << layer.name;
    EXPECT_GE(layer.backward_seconds, 0) << layer.name;
  }
  EXPECT_EQ(parse_profile(to_json(profile), "test"), profile);
}

TEST(MeasureProfile, KnowsTheCopiesOfWeightsIn16Bits) {
  torch::nn::Linear fc(kColumns, kColumns);
  const auto x = torch::randn({kRows, kColumns});
  const auto measured = [&](const auto& product, Precision precision) {
    Sequence model;
    model.add("first", torch::nn::Tanh());
    model.add("fc", [&](torch::Tensor y) { return product(y, fc->weight, fc->bias); });
    MeasureOptions options;
    options.precision = precision;
    return measure_profile(model, mean_squared_error(), {x}, {x}, options).layers[1];
  };
  EXPECT_EQ(measured(accumulating_linear, Precision::kFull).copy_bytes, 0);
  const LayerCost ours = measured(accumulating_linear, Precision::kBf16);
  EXPECT_EQ(ours.copy_bytes, 2 * kColumns * (kColumns + 1));
  const auto torchs = [](const torch::Tensor& y, const torch::Tensor& weight,
                         const torch::Tensor& bias) { return torch::linear(y, weight, bias); };
  // Of which none is among what a micro-batch keeps.
  EXPECT_LE(ours.saved_bytes + 2 * kColumns * kColumns,
            measured(torchs, Precision::kBf16).saved_bytes);
}

TEST(MeasureProfile, KnowsTheOptimizersState) {
  Sequence model;
  model.add("fc", torch::nn::Linear(kColumns, kColumns));
  const auto x = torch::randn({kRows, kColumns});
  MeasureOptions options;
  options.optimizer = adam();
  const LayerCost cost = measure_profile(model, mean_squared_error(), {x}, {x}, options).layers[0];
  EXPECT_GE(cost.optimizer_bytes, 2 * cost.parameter_bytes);  // two moments
  EXPECT_LE(cost.optimizer_bytes, 2 * cost.parameter_bytes + 64);
  EXPECT_GT(cost.step_seconds, 0);
}

TEST(MeasureProfile, LeavesTheModelAsItWas) {
  const Features f{
      .skips = true, .tied = true, .batch_norm = true, .dropout = true, .frozen = true};
  const Sequence model = make_model(f);
  const Batch batch = make_batch(12, 0, f);
  plain_gradients(model, cross_entropy(), batch, 2, 0);
  const auto state = [&] {
    Tensors tensors = gradients_of(model);
    for (const auto& [name, tensor] : model.named_parameters())
      tensors.push_back(tensor.detach().clone());
    for (const auto& [name, tensor] : model.named_buffers()) tensors.push_back(tensor.clone());
    torch::manual_seed(7);
    return tensors;
  };
  const Tensors before = state();
  const auto next_draw = [] { return torch::rand({4}); };
  const auto expected = next_draw();
  torch::manual_seed(7);
  measure_profile(model, cross_entropy(), batch.inputs, batch.targets);
  EXPECT_TRUE(next_draw().equal(expected));
  const Tensors after = state();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(after[i].defined(), before[i].defined());
    EXPECT_TRUE(!before[i].defined() || after[i].equal(before[i])) << i;
  }
}

}  // namespace
}  // namespace pipewright
