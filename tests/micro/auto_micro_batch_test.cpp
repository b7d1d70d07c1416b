// Promise 1 and 2 for lanes: the gradients of the plain full-batch step, and the same bits for
// every number of lanes.

#include "pipewright/micro/auto_micro_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/micro/click_model.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

namespace F = torch::nn::functional;

Batch make_batch(std::int64_t rows, std::uint64_t seed = 3) {
  torch::manual_seed(seed);
  const auto ids = torch::randint(kValues, {rows, kFields}, torch::kLong);
  const auto numbers = torch::randn({rows, kNumbers}, torch::kDouble);
  const auto targets = torch::randn({rows, 1}, torch::kDouble);
  targets[0] = 1;  // some are positive
  return {.inputs = {ids, numbers}, .targets = {targets}};
}

torch::Tensor mean_squares(const torch::Tensor& output, const torch::Tensor& target) {
  return F::mse_loss(output, target);
}
torch::Tensor sum_of_squares(const torch::Tensor& output, const torch::Tensor& target) {
  return F::mse_loss(output, target, F::MSELossFuncOptions(torch::kSum));
}

/// The sum of squares of rows with a positive target, divided by their number.
Loss positive_squares(bool weight_known) {
  Loss loss;
  loss.value = [](const Tensors& outputs, const Tensors& targets) -> LossValue {
    const torch::Tensor counts = (targets[0] > 0).to(torch::kDouble);
    return {((outputs[0] - targets[0]).pow(2) * counts).sum(), counts.sum().item<double>()};
  };
  if (weight_known)
    loss.weight = [](const Tensors& targets) { return (targets[0] > 0).sum().item<double>(); };
  return loss;
}

torch::Tensor plain_loss(ClickModel& model, const std::string& kind, const Batch& batch) {
  const torch::Tensor output = model->forward(batch.inputs[0], batch.inputs[1]);
  const torch::Tensor& target = batch.targets[0];
  if (kind == "mean") return mean_squares(output, target);
  if (kind == "sum") return sum_of_squares(output, target);
  const LossValue value = positive_squares(true).value({output}, {target});
  return value.sum / value.weight;
}

std::unique_ptr<AutoMicroBatch> make_step(ClickModel& model, const std::string& kind, int num,
                                          int lanes) {
  AutoMicroBatchOptions options{.num = num, .lanes = lanes, .threads = 1};
  if (kind == "mean") return std::make_unique<AutoMicroBatch>(model, mean_squares, options);
  if (kind == "weighted")
    return std::make_unique<AutoMicroBatch>(model, positive_squares(true), options);
  if (kind == "counted")
    return std::make_unique<AutoMicroBatch>(model, positive_squares(false), options);
  options.reduction = Reduction::kSum;
  return std::make_unique<AutoMicroBatch>(model, sum_of_squares, options);
}

torch::Tensor dense(const torch::Tensor& tensor) {
  return tensor.is_sparse() ? tensor.to_dense() : tensor;
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& expected,
                  const std::string& name) {
  ASSERT_EQ(actual.defined(), expected.defined()) << name;
  if (!actual.defined()) return;
  const double size = dense(expected).abs().max().item<double>();
  EXPECT_LE((dense(actual) - dense(expected)).abs().max().item<double>(), 1e-10 * (size + 1e-30))
      << name;
}

struct GradientCase {
  std::string loss;
  bool sparse;
  int num;
  std::int64_t rows;
};

std::string name_of(const testing::TestParamInfo<GradientCase>& info) {
  const GradientCase& p = info.param;
  return p.loss + (p.sparse ? "Sparse" : "Dense") + std::to_string(p.num) + "Of" +
         std::to_string(p.rows);
}

std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> cases;
  for (const char* loss : {"mean", "sum", "weighted", "counted"}) {
    for (const bool sparse : {false, true}) {
      for (const auto& [num, rows] : {std::pair(1, 6), {2, 6}, {3, 7}, {4, 10}, {5, 3}})
        cases.push_back({loss, sparse, num, rows});
    }
  }
  return cases;
}

class Gradients : public testing::TestWithParam<GradientCase> {};

TEST_P(Gradients, AreThoseOfTheWholeBatch) {
  const GradientCase& p = GetParam();
  ClickModel model = make_click_model({.sparse = p.sparse});
  ClickModel plain = make_click_model({.sparse = p.sparse});
  const auto step = make_step(model, p.loss, p.num, std::min(2, p.num));
  for (int i = 0; i < 2; ++i) {  // the second is added to the first
    const Batch batch = make_batch(p.rows, 3 + i);
    const torch::Tensor expected = plain_loss(plain, p.loss, batch);
    expected.backward();
    const MicroBatchResult result = step->backward(batch);
    EXPECT_EQ(result.micro_batches, std::min<std::int64_t>(p.num, p.rows));
    expect_close(result.loss, expected.detach(), "loss");
    for (const auto& item : model->named_parameters()) {
      expect_close(item.value().grad(), plain->named_parameters()[item.key()].grad(), item.key());
      if (p.sparse && item.key() == "table") {
        EXPECT_TRUE(item.value().grad().is_sparse());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, Gradients, testing::ValuesIn(gradient_cases()), name_of);

using torch::optim::Optimizer;

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, std::vector<torch::Tensor> p) {
  using namespace torch::optim;
  if (name == "SGD") return std::make_unique<SGD>(p, SGDOptions(0.05));
  if (name == "Momentum") return std::make_unique<SGD>(p, SGDOptions(0.05).momentum(0.9));
  if (name == "Adam") return std::make_unique<Adam>(p, AdamOptions(0.01));
  if (name == "AdamW") return std::make_unique<AdamW>(p, AdamWOptions(0.01));
  if (name == "RMSprop") return std::make_unique<RMSprop>(p, RMSpropOptions(0.01));
  if (name == "Adagrad") return std::make_unique<Adagrad>(p, AdagradOptions(0.05));
  return std::make_unique<LBFGS>(p, LBFGSOptions(0.1).max_iter(3));
}

struct OptimizerCase {
  std::string optimizer;
  bool sparse;
};

class Optimizers : public testing::TestWithParam<OptimizerCase> {};

/// Weights after three steps, the last batch smaller.
template <typename Backward>
void train(Optimizer* optimizer, const Backward& backward) {
  for (int i = 0; i < 3; ++i) {
    const Batch batch = make_batch(i == 2 ? 5 : 9, 3 + i);
    optimizer->step([&] {
      optimizer->zero_grad();
      return backward(batch);
    });
  }
}

TEST_P(Optimizers, TrainAsWithTheWholeBatch) {
  const OptimizerCase& p = GetParam();
  ClickModel model = make_click_model({.sparse = p.sparse});
  ClickModel plain = make_click_model({.sparse = p.sparse});
  const auto optimizer = make_optimizer(p.optimizer, model->parameters());
  const auto plain_optimizer = make_optimizer(p.optimizer, plain->parameters());
  AutoMicroBatch step(model, mean_squares, {.num = 4, .lanes = 2, .threads = 1});
  train(optimizer.get(), [&](const Batch& batch) { return step.backward(batch).loss; });
  train(plain_optimizer.get(), [&](const Batch& batch) {
    const torch::Tensor loss = plain_loss(plain, "mean", batch);
    loss.backward();
    return loss;
  });
  for (const auto& item : model->named_parameters())
    expect_close(item.value().detach(), plain->named_parameters()[item.key()].detach(), item.key());
}

INSTANTIATE_TEST_SUITE_P(
    All, Optimizers,
    testing::Values(OptimizerCase{"SGD", false}, OptimizerCase{"Momentum", false},
                    OptimizerCase{"Adam", false}, OptimizerCase{"AdamW", false},
                    OptimizerCase{"RMSprop", false}, OptimizerCase{"Adagrad", false},
                    OptimizerCase{"LBFGS", false}, OptimizerCase{"SGD", true},
                    OptimizerCase{"Adagrad", true}),
    [](const auto& of) { return of.param.optimizer + (of.param.sparse ? "Sparse" : ""); });

/// Every parameter after three steps, with dropout.
Tensors trained(bool sparse, int lanes) {
  ClickModel model = make_click_model({.sparse = sparse, .dropout = 0.3});
  const auto optimizer = make_optimizer("Adagrad", model->parameters());
  AutoMicroBatch step(model, mean_squares, {.num = 5, .lanes = lanes, .threads = 1});
  train(optimizer.get(), [&](const Batch& batch) { return step.backward(batch).loss; });
  return model->parameters();
}

TEST(Lanes, TheirNumberChangesNoBit) {
  for (const bool sparse : {false, true}) {
    const Tensors one = trained(sparse, 1);
    for (const int lanes : {2, 3, 5}) {
      const Tensors several = trained(sparse, lanes);
      for (std::size_t i = 0; i < one.size(); ++i)
        EXPECT_TRUE(torch::equal(one[i], several[i])) << lanes << " lanes, parameter " << i;
    }
  }
}

TEST(Lanes, SparseGradientsAreCoalesced) {
  ClickModel model = make_click_model({.sparse = true});
  AutoMicroBatch step(model, mean_squares, {.num = 3, .lanes = 2});
  step.backward(make_batch(8));
  EXPECT_TRUE(model->table.grad().is_coalesced());
}

TEST(Lanes, BatchesThatAreGivenCountAsOne) {
  ClickModel model = make_click_model({});
  ClickModel plain = make_click_model({});
  const Batch whole = make_batch(9);
  std::vector<Batch> parts;
  for (const auto& [first, last] : {std::pair(0, 2), {2, 6}, {6, 9}}) {
    parts.push_back({{whole.inputs[0].slice(0, first, last), whole.inputs[1].slice(0, first, last)},
                     {whole.targets[0].slice(0, first, last)}});
  }
  AutoMicroBatch step(model, mean_squares, {.num = 3, .lanes = 2});
  const MicroBatchResult result = step.backward(parts);
  EXPECT_EQ(result.micro_batches, 3);
  EXPECT_EQ(result.weight, 9);
  plain_loss(plain, "mean", whole).backward();
  for (const auto& item : model->named_parameters())
    expect_close(item.value().grad(), plain->named_parameters()[item.key()].grad(), item.key());
}

TEST(Lanes, WhatIsFrozenHasNoGradient) {
  ClickModel model = make_click_model({});
  model->table.requires_grad_(false);
  AutoMicroBatch step(model, mean_squares, {.num = 2, .lanes = 2});
  step.backward(make_batch(6));
  EXPECT_FALSE(model->table.grad().defined());
  EXPECT_TRUE(model->hidden->weight.grad().defined());
}

TEST(Lanes, AFailureLeavesGradientsAsTheyWere) {
  ClickModel model = make_click_model({});
  AutoMicroBatch step(model, mean_squares, {.num = 4, .lanes = 2});
  step.backward(make_batch(8));
  const Tensors before = [&] {
    Tensors result;
    for (const auto& p : model->parameters()) result.push_back(p.grad().clone());
    return result;
  }();
  Batch bad = make_batch(8);
  bad.inputs[0][5][0] = kValues + 1;  // in one micro-batch
  EXPECT_ANY_THROW(step.backward(bad));
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(torch::equal(before[i], model->parameters()[i].grad()));
  step.backward(make_batch(8));  // and it can be used again
}

TEST(Lanes, TheNumberIsMeasured) {
  ClickModel model = make_click_model({});
  ClickModel plain = make_click_model({});
  AutoMicroBatch step(model, mean_squares, {.lanes = 2});
  const Batch batch = make_batch(16);
  step.backward(batch);
  EXPECT_THAT(std::vector<int>({1, 2, 4, 8}), testing::Contains(step.num()));
  EXPECT_THAT(step.measured(), testing::HasSubstr("8 micro-batches on 2 lanes"));
  plain_loss(plain, "mean", batch).backward();
  for (const auto& item : model->named_parameters())
    expect_close(item.value().grad(), plain->named_parameters()[item.key()].grad(), item.key());
}

}  // namespace
}  // namespace pipewright
