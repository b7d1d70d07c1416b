// Promise 6 and the mistakes of users: the first failure reaches the caller with its place, and the
// trainer goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "pipewright/base/error.h"
#include "tests/refusal.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Throws when told to, in its forward or in its backward.
struct Fuse {
  bool blow_forward = false;
  bool blow_backward = false;
};

struct FuseFunction : torch::autograd::Function<FuseFunction> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               std::int64_t fuse) {
    context->saved_data["fuse"] = fuse;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* fuse = reinterpret_cast<const Fuse*>(context->saved_data["fuse"].toInt());
    if (fuse->blow_backward) throw std::runtime_error("the fuse blew backwards");
    return {gradients[0], torch::Tensor()};
  }
};

Sequence model_with(Fuse* fuse) {
  Sequence model = make_model({});
  model.add("fuse", [fuse](torch::Tensor x) {
    if (fuse->blow_forward) throw std::runtime_error("the fuse blew");
    return FuseFunction::apply(x, reinterpret_cast<std::int64_t>(fuse));
  });
  model.add("last", torch::nn::Linear(torch::nn::LinearOptions(kVocabulary, kVocabulary)));
  for (const Layer& layer : model.layers()) {
    if (layer.module) layer.module->to(torch::kFloat64);
  }
  return model;
}

int num_threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

class Failure : public testing::TestWithParam<std::string> {};

TEST_P(Failure, NamesThePlaceAndLeavesTheTrainerUsable) {
  for (const bool backward : {false, true}) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      SCOPED_TRACE(testing::Message() << "K=" << ranks << " backward=" << backward);
      Fuse fuse;
      const Strategy strategy = strategy_of(ranks, 4, GetParam());
      Trainer trainer(model_with(&fuse), cross_entropy(), sgd(0.1, 0), strategy);
      Trainer healthy(model_with(&fuse), cross_entropy(), sgd(0.1, 0), strategy);
      const auto batch = [](int step) { return make_batch(9, step, {}); };
      trainer.step(batch(0));
      healthy.step(batch(0));
      const int threads = num_threads_of_process();
      (backward ? fuse.blow_backward : fuse.blow_forward) = true;
      const std::string message = refusal([&] { trainer.step(batch(1)); });
      EXPECT_THAT(message,
                  AllOf(HasSubstr("[exec] rank "), HasSubstr("stage "), HasSubstr("the fuse blew"),
                        HasSubstr(backward ? "backward" : "forward")));
      fuse = {};
      EXPECT_EQ(num_threads_of_process(), threads);
      EXPECT_EQ(trainer.step(batch(2)).loss, healthy.step(batch(2)).loss);
      const auto mine = trainer.state_dict();
      const auto theirs = healthy.state_dict();
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_TRUE(mine[i].second.equal(theirs[i].second)) << mine[i].first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Failure,
                         testing::Values("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1",
                                         "zb-v"),
                         name_of_schedule<testing::TestParamInfo<std::string>>);

TEST(Trainer, RefusesStrategiesThatMakeNoSense) {
  const auto with = [](auto change) {
    Strategy strategy;
    change(strategy);
    return refusal(
        [&] { Trainer trainer(make_model({}), cross_entropy(), sgd(0.1, 0), strategy); });
  };
  EXPECT_THAT(with([](Strategy& s) { s.ranks = 0; }), HasSubstr("ranks = 0; use 1 or more"));
  EXPECT_THAT(with([](Strategy& s) { s.micro_batches = 0; }), HasSubstr("micro_batches = 0"));
  EXPECT_THAT(with([](Strategy& s) { s.schedule = "2f2b"; }), HasSubstr("'2f2b' is no schedule"));
  EXPECT_THAT(with([](Strategy& s) { s.schedule = "forward-only"; }), HasSubstr("trains nothing"));
  EXPECT_THAT(with([](Strategy& s) { s.ranks = 50; }), HasSubstr("cannot split"));
  EXPECT_THAT(with([](Strategy& s) {
                s.ranks = 2, s.sizes = {1, 2};
              }),
              HasSubstr("sizes (1, 2) must be 2 positive"));
  EXPECT_THAT(with([](Strategy& s) { s.clip_norm = -1; }), HasSubstr("clip_norm = -1"));
  EXPECT_THAT(with([](Strategy& s) { s.merge_steps = 0; }), HasSubstr("merge_steps = 0"));
  EXPECT_THAT(with([](Strategy& s) { s.chunks = 2; }), HasSubstr("1f1b runs exactly 1 chunk"));
  const OptimizerFactory lbfgs = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::LBFGS>(std::move(parameters));
  };
  EXPECT_THAT(refusal([&] { Trainer trainer(make_model({}), cross_entropy(), lbfgs, {}); }),
              HasSubstr("LBFGS"));
  EXPECT_THAT(refusal([&] { Trainer trainer(Sequence(), cross_entropy(), sgd(0.1, 0), {}); }),
              HasSubstr("no layers"));
}

TEST(Trainer, RefusesBatchesThatMakeNoSense) {
  Strategy strategy;
  strategy.ranks = 2;
  strategy.micro_batches = 2;
  Trainer trainer(make_model({}), cross_entropy(), sgd(0.1, 0), strategy);
  const auto step = [&](Tensors inputs, Tensors targets) {
    return refusal([&] { trainer.step({std::move(inputs), std::move(targets)}); });
  };
  const auto ids = torch::randint(kVocabulary, {4});
  EXPECT_THAT(step({}, {ids}), HasSubstr("the batch has no inputs"));
  EXPECT_THAT(step({ids}, {}), HasSubstr("the batch has no targets"));
  EXPECT_THAT(step({ids.slice(0, 0, 0)}, {ids.slice(0, 0, 0)}), HasSubstr("0 rows"));
  EXPECT_THAT(step({ids}, {ids.slice(0, 0, 3)}), HasSubstr("target 0 has 3 rows, others have 4"));
  EXPECT_THAT(step({torch::tensor(3)}, {ids}), HasSubstr("input 0 has no dimension to split"));
  EXPECT_THAT(step({ids.to(torch::kFloat64)}, {ids}),
              AllOf(HasSubstr("rank 0, stage 0, 0F0"), HasSubstr("indices")));
  EXPECT_THAT(step({ids}, {torch::full({4}, 99)}), HasSubstr("stage 1"));
  EXPECT_THAT(step({ids}, {torch::zeros({4, 2}, torch::kLong)}), HasSubstr("do not fit targets"));
  EXPECT_NO_THROW(trainer.step({{ids}, {ids}}));
}

TEST(Trainer, EvaluatesAndPredictsWithoutTouchingTheModel) {
  const Features f{.skips = true, .tied = true, .batch_norm = true};
  const Batch batch = make_batch(11, 3, f);
  Sequence reference = make_model(f);
  reference.train(false);
  const torch::NoGradGuard no_grad;
  const auto expected = plain_forward(reference, batch.inputs, 0, 0)[0];
  const LossValue loss = cross_entropy().value({expected}, batch.targets);
  const double weight = cross_entropy().weight(batch.targets);
  for (int ranks = 1; ranks <= 3; ++ranks) {
    Trainer trainer(make_model(f), cross_entropy(), sgd(0.1, 0), strategy_of(ranks, 4));
    const auto before = trainer.state_dict()[0].second.clone();
    const Tensors outputs = trainer.predict(batch.inputs);
    ASSERT_EQ(outputs.size(), 1U);
    EXPECT_TRUE(torch::allclose(outputs[0], expected, 1e-12, 1e-12));
    EXPECT_NEAR(trainer.evaluate(batch).loss, loss.sum.item<double>() / weight, 1e-12);
    EXPECT_TRUE(trainer.state_dict()[0].second.equal(before));
    EXPECT_TRUE(trainer.model().layers()[0].module->is_training());
  }
}

TEST(Trainer, MergesGradientsOverSteps) {
  for (const bool average : {true, false}) {
    Sequence reference = make_model({});
    for (int step = 0; step < 3; ++step)
      plain_gradients(reference, cross_entropy(), make_batch(7, step, {}), 1, 0);
    std::vector<torch::Tensor> parameters;
    for (auto& [name, parameter] : reference.named_parameters()) {
      if (average) parameter.mutable_grad().div_(3);
      parameters.push_back(parameter);
    }
    torch::optim::SGD(parameters, 0.1).step();
    Strategy strategy;
    strategy.ranks = 2;
    strategy.micro_batches = 3;
    strategy.merge_steps = 3;
    strategy.merge_average = average;
    Trainer trainer(make_model({}), cross_entropy(), sgd(0.1, 0), strategy);
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(trainer.step(make_batch(7, step, {})).updated, step == 2);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(trainer.model().named_parameters()[i].second, parameters[i],
                                  1e-10, 1e-12));
    }
  }
}

}  // namespace
}  // namespace pipewright
