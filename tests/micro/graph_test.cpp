// TorchScript models on lanes: exact, or refused by the analysis.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "pipewright/micro/auto_micro_batch.h"
#include "tests/graph/models.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

bool has_loss(const std::string& name) {
  return std::set<std::string>{"two_towers_pairs", "with_loss", "masked_loss", "summed_loss"}
      .contains(name);
}

bool mixes(const std::string& name) {
  return std::set<std::string>{"two_towers", "data_branch", "batch_softmax", "cnn_norm",
                               "cnn_norm_traced"}
      .contains(name);
}

torch::Tensor sample_losses(const Tensors& outputs) {  // (rows)
  torch::Tensor result;
  for (const torch::Tensor& output : outputs) {
    const torch::Tensor one = output.pow(2).flatten(1).mean(1);
    result = result.defined() ? result + one : one;
  }
  return result;
}

Loss squares() {
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    return {sample_losses(outputs).sum(), static_cast<double>(targets[0].size(0))};
  };
  return loss;
}

std::unique_ptr<AutoMicroBatch> make_step(const std::string& name, const Graph& graph, int lanes) {
  const AutoMicroBatchOptions options{.num = 3, .lanes = lanes, .threads = 1};
  if (has_loss(name)) return std::make_unique<AutoMicroBatch>(graph, options);
  return std::make_unique<AutoMicroBatch>(graph, squares(), options);
}

class Exported : public testing::TestWithParam<std::string> {};

TEST_P(Exported, HasTheGradientsOfTheWholeBatchOrIsRefused) {
  const std::string& name = GetParam();
  const Graph graph = load_model(name);
  const Tensors inputs = make_inputs(name, 8);
  const Batch batch{.inputs = inputs, .targets = {inputs[0]}};
  const auto step = make_step(name, graph, 2);
  if (mixes(name)) {
    EXPECT_THAT(refusal([&] { step->backward(batch); }),
                HasSubstr("micro-batches would change the gradients"));
    return;
  }
  const MicroBatchResult result = step->backward(batch);
  const Graph plain = load_model(name);
  torch::manual_seed(1);
  const Tensors outputs = call_module(plain.module(), inputs);
  const torch::Tensor loss = has_loss(name) ? outputs[0] : sample_losses(outputs).mean();
  loss.backward();
  EXPECT_NEAR(result.loss.item<double>(), loss.item<double>(), 1e-10);
  for (std::size_t i = 0; i < graph.parameters().size(); ++i) {
    const torch::Tensor& actual = graph.parameters()[i].tensor.grad();
    const torch::Tensor& expected = plain.parameters()[i].tensor.grad();
    ASSERT_EQ(actual.defined(), expected.defined()) << graph.parameters()[i].name;
    if (!actual.defined()) continue;
    EXPECT_LE((actual - expected).abs().max().item<double>(),
              1e-10 * (expected.abs().max().item<double>() + 1e-3))
        << graph.parameters()[i].name;
  }
}

TEST_P(Exported, HasTheSameBitsForEveryNumberOfLanes) {
  const std::string& name = GetParam();
  if (mixes(name)) return;
  const Tensors inputs = make_inputs(name, 8);
  std::vector<Tensors> gradients;
  for (const int lanes : {1, 2, 3}) {
    const Graph graph = load_model(name);
    make_step(name, graph, lanes)->backward({.inputs = inputs, .targets = {inputs[0]}});
    gradients.emplace_back();
    for (const GraphAttribute& p : graph.parameters())
      gradients.back().push_back(p.tensor.grad().defined() ? p.tensor.grad() : torch::zeros({1}));
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(gradients[0][i], gradients[1][i]));
    EXPECT_TRUE(torch::equal(gradients[0][i], gradients[2][i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Exported, testing::ValuesIn(all_models()),
                         [](const auto& of) { return of.param; });

}  // namespace
}  // namespace pipewright
