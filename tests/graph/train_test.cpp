// Promise 1 and 2 for models that nobody wrote as layers: gradients and weights of the plain
// module, and the same bits for every number of ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "pipewright/graph/batch_analysis.h"
#include "pipewright/graph/cut.h"
#include "pipewright/train/trainer.h"
#include "tests/graph/models.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

bool has_loss(const std::string& name) {
  return std::set<std::string>{"two_towers_pairs", "with_loss", "masked_loss", "summed_loss"}
      .contains(name);
}

constexpr int kRowsOfDropout = 8;

bool has_norms(const std::string& name) { return name.rfind("cnn_norm", 0) == 0; }

/// A number for each sample: squares of all its outputs.
torch::Tensor sample_losses(const Tensors& outputs) {
  torch::Tensor result;
  for (const torch::Tensor& output : outputs) {
    const torch::Tensor one = output.pow(2).flatten(1).mean(1);
    result = result.defined() ? result + one : one;
  }
  return result;  // (rows)
}

Loss squares() {
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    return {sample_losses(outputs).sum(), static_cast<double>(targets[0].size(0))};
  };
  loss.weight = [](const Tensors& targets) { return static_cast<double>(targets[0].size(0)); };
  return loss;
}

Batch make_batch(const std::string& name, std::int64_t rows, std::uint64_t seed) {
  const Tensors inputs = make_inputs(name, rows, seed);
  return {.inputs = inputs, .targets = {inputs[0]}};
}

struct Made {
  Graph graph;
  Sequence model;
  Loss loss;
};

Made make(const std::string& name) {
  Graph graph = load_model(name);
  const BatchReport report = analyse_batch(graph, make_inputs(name, 5));
  report.check(/*allow_batch_norm=*/true);
  if (has_loss(name)) {
    CutLoss made = cut_with_loss(graph, report, {}, /*divide_sum=*/true);
    return {graph, std::move(made.model), std::move(made.loss)};
  }
  return {graph, cut(graph).model, squares()};
}

/// The loss of the plain module for a whole batch; of batch norms for micro-batches of it.
torch::Tensor plain_loss(const std::string& name, const Graph& graph, const Batch& batch,
                         int parts) {
  torch::Tensor sum;
  for (const Tensors& inputs : split(batch.inputs, {}, parts)) {
    const Tensors outputs = call_module(graph.module(), inputs);
    torch::Tensor one = has_loss(name) ? outputs[0] : sample_losses(outputs).sum();
    if (!has_loss(name) || name == "summed_loss")
      one = one / static_cast<double>(batch.inputs[0].size(0));
    sum = sum.defined() ? sum + one : one;
  }
  return sum;
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.defined() != b.defined()) return 1;
  if (!a.defined()) return 0;
  const double size = std::max(1e-30, b.abs().max().item<double>());
  return (a - b).abs().max().item<double>() / std::max(size, 1e-6);
}

std::unique_ptr<torch::optim::Optimizer> make_sgd(const Tensors& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

OptimizerFactory sgd() {
  return [](const Parameters& parameters) { return make_sgd(parameters); };
}

Strategy strategy_of(int ranks, int micro_batches) {
  Strategy strategy;
  strategy.ranks = ranks;
  strategy.micro_batches = micro_batches;
  strategy.threads_per_rank = 1;
  strategy.deadline_seconds = 120;
  return strategy;
}

class CutModels : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kRows = 7;
  const std::string& name() const { return GetParam(); }
  int parts(int micro_batches) const { return has_norms(name()) ? micro_batches : 1; }
};

TEST_P(CutModels, GradientsEqualThePlainModules) {
  const Batch batch = make_batch(name(), kRows, 11);
  for (const int micro_batches : {1, 2, 3}) {
    const Graph plain = load_model(name());
    const torch::Tensor loss = plain_loss(name(), plain, batch, parts(micro_batches));
    loss.backward();
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "K=" << ranks << " M=" << micro_batches);
      Made made = make(name());
      Trainer trainer(std::move(made.model), made.loss, sgd(), strategy_of(ranks, micro_batches));
      EXPECT_NEAR(trainer.gradients(batch).loss, loss.item<double>(), 1e-12);
      for (std::size_t i = 0; i < plain.parameters().size(); ++i) {
        EXPECT_LE(difference(made.graph.parameters()[i].tensor.grad(),
                             plain.parameters()[i].tensor.grad()),
                  1e-10)
            << plain.parameters()[i].name;
      }
    }
  }
}

TEST_P(CutModels, TrainOverTwoAndThreeStagesAsThePlainModule) {
  const int micro_batches = 3;
  const Graph plain = load_model(name());
  Tensors parameters;
  for (const GraphAttribute& parameter : plain.parameters()) parameters.push_back(parameter.tensor);
  const auto optimizer = make_sgd(parameters);
  for (int step = 0; step < 4; ++step) {
    optimizer->zero_grad();
    plain_loss(name(), plain, make_batch(name(), kRows, 20 + step), parts(micro_batches))
        .backward();
    optimizer->step();
  }
  std::vector<Tensors> results;
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "K=" << ranks);
    Made made = make(name());
    Trainer trainer(std::move(made.model), made.loss, sgd(), strategy_of(ranks, micro_batches));
    for (int step = 0; step < 4; ++step) trainer.step(make_batch(name(), kRows, 20 + step));
    results.emplace_back();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor trained = made.graph.parameters()[i].tensor;
      EXPECT_LE(difference(trained, parameters[i]), 1e-10) << plain.parameters()[i].name;
      EXPECT_TRUE(trained.equal(ranks == 1 ? trained : results[0][i])) << "same bits";
      results.back().push_back(trained.detach().clone());
    }
  }
}

TEST_P(CutModels, RecomputeGivesTheSameBits) {
  Tensors first;
  for (const auto mode : {RecomputeMode::kNone, RecomputeMode::kAll, RecomputeMode::kEvery}) {
    Made made = make(name());
    Strategy strategy = strategy_of(2, 3);
    strategy.recompute = mode;
    Trainer trainer(std::move(made.model), made.loss, sgd(), strategy);
    for (int step = 0; step < 2; ++step) trainer.step(make_batch(name(), kRows, 30 + step));
    for (std::size_t i = 0; i < made.graph.attributes().size(); ++i) {
      if (made.graph.attributes()[i].kind == GraphAttribute::Kind::kMode) continue;
      const torch::Tensor& tensor = made.graph.attributes()[i].tensor;
      if (mode == RecomputeMode::kNone) first.push_back(tensor.detach().clone());
    }
    std::size_t next = 0;
    for (const GraphAttribute& attribute : made.graph.attributes()) {
      if (attribute.kind == GraphAttribute::Kind::kMode) continue;
      EXPECT_TRUE(attribute.tensor.equal(first[next++])) << attribute.name;
    }
  }
}

TEST_P(CutModels, TrainedModelIsSavedAndReadAgain) {
  Made made = make(name());
  Trainer trainer(std::move(made.model), made.loss, sgd(), strategy_of(2, 2));
  trainer.step(make_batch(name(), kRows, 40));
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("pipewright_cut_" + name() + ".pt");
  made.graph.save(path.string());
  const Tensors inputs = make_inputs(name(), 4);
  const Tensors expected = made.graph.forward(inputs);
  const Tensors got = call_module(torch::jit::load(path.string()), inputs);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i]));
  std::filesystem::remove(path);
}

std::vector<std::string> models_that_work() {
  std::vector<std::string> names;
  for (const std::string& name : all_models()) {
    if (name != "two_towers" && name != "data_branch" && name != "batch_softmax")
      names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, CutModels, testing::ValuesIn(models_that_work()),
                         [](const auto& test) { return test.param; });

TEST(CutGraph, ModelsThatMixSamplesAreRefusedWithTheReason) {
  EXPECT_THAT(refusal([] { make("two_towers"); }), HasSubstr("in-batch negatives"));
  EXPECT_THAT(refusal([] { make("data_branch"); }), HasSubstr("branches on values of the batch"));
  EXPECT_THAT(refusal([] { make("batch_softmax"); }), HasSubstr("a softmax over dimension 0"));
}

TEST(CutGraph, BatchNormCountsMiniBatchesAndMovesItsStatisticsOnceForEach) {
  for (const std::string name : {"cnn_norm", "cnn_norm_traced"}) {
    Made made = make(name);
    Strategy strategy = strategy_of(2, 3);
    strategy.recompute = RecomputeMode::kAll;
    const GraphNorm norm = made.graph.norms()[0];
    const torch::Tensor& counter = made.graph.attributes()[norm.counter].tensor;
    const torch::Tensor& mean = made.graph.attributes()[norm.running_mean].tensor;
    const auto counted = counter.item<std::int64_t>();
    const torch::Tensor before = mean.clone();
    const Batch batch = make_batch(name, 9, 3);
    // What one batch norm over the whole batch would see: the first one's input is the first
    // convolution's output.
    const auto parameters = made.graph.parameters();
    const auto weight_of = [&](const std::string& wanted) {
      for (const GraphAttribute& parameter : parameters)
        if (parameter.name == wanted) return parameter.tensor.detach().clone();
      return torch::Tensor();
    };
    const torch::Tensor seen = torch::conv2d(batch.inputs[0], weight_of("features.0.weight"),
                                             weight_of("features.0.bias"), 1, 1);
    const torch::Tensor expected = before * 0.9 + seen.mean({0, 2, 3}) * 0.1;
    Trainer trainer(std::move(made.model), made.loss, sgd(), strategy);
    trainer.step(batch);
    EXPECT_EQ(counter.item<std::int64_t>(), counted + 1) << name;
    EXPECT_TRUE(torch::allclose(mean, expected, 1e-10, 1e-12)) << name;
  }
}

TEST(CutGraph, DropoutDrawsTheSameForEveryNumberOfRanksAndWithRecompute) {
  Tensors first;
  for (const int ranks : {1, 2, 3}) {
    torch::jit::Module module("Model");
    module.register_attribute("training", c10::BoolType::get(), true);
    torch::manual_seed(6);
    for (const char* name : {"a", "b", "c"})
      module.register_parameter(name, torch::randn({4, 4}, torch::kDouble), false);
    module.define(
        "def forward(self, x):\n"
        "  for w in (self.a, self.b, self.c):\n"
        "    x = torch.dropout(torch.tanh(torch.mm(x, w)), 0.4, self.training)\n"
        "  return x\n");
    const Graph graph = Graph::from(module);
    Strategy strategy = strategy_of(ranks, 3);
    if (ranks == 2) strategy.recompute = RecomputeMode::kAll;
    Sequence model = cut(graph).model;
    ASSERT_EQ(model.size(), 3U);
    Trainer trainer(std::move(model), squares(), sgd(), strategy);
    for (int step = 0; step < 3; ++step) {
      const auto x = make_inputs("control_flow", kRowsOfDropout, 50 + step);
      trainer.step({.inputs = x, .targets = x});
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const torch::Tensor tensor = graph.parameters()[i].tensor;
      if (ranks == 1) first.push_back(tensor.detach().clone());
      EXPECT_TRUE(tensor.equal(first[i])) << ranks;
    }
    const auto x = make_inputs("control_flow", kRowsOfDropout);
    EXPECT_TRUE(trainer.predict(x)[0].equal(trainer.predict(x)[0])) << "no dropout in eval mode";
  }
}

TEST(CutGraph, EvaluationUsesEvalModeAndPutsTrainingBack) {
  Made made = make("cnn_norm");
  const Batch batch = make_batch("cnn_norm", 6, 5);
  Graph eval = load_model("cnn_norm");
  eval.train(false);
  const torch::Tensor expected = eval.forward(batch.inputs)[0];
  Trainer trainer(std::move(made.model), made.loss, sgd(), strategy_of(2, 2));
  EXPECT_TRUE(torch::allclose(trainer.predict(batch.inputs)[0], expected, 1e-12, 1e-12));
  trainer.step(batch);
  EXPECT_EQ(made.graph.attributes()[made.graph.norms()[0].counter].tensor.item<std::int64_t>(), 1);
}

}  // namespace
}  // namespace pipewright
