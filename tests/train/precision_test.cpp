// Mixed precision: the bits of a plain loop under autocast, and loss scaling over all stages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/nn/linear.h"
#include "tests/refusal.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// float32, as mixed precision is meant for.
Sequence float_model(const Features& f) {
  Sequence model = make_model(f);
  for (const Layer& layer : model.layers()) {
    if (layer.module) layer.module->to(torch::kFloat32);
  }
  return model;
}

TEST(Precision, Bf16GivesTheSameBitsForEveryPartitionAndRecompute) {
  const Features f{.skips = true, .tied = true, .batch_norm = true, .dropout = true};
  Tensors first;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
      for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
        Strategy strategy = strategy_of(ranks, 4, schedule);
        strategy.precision = Precision::kBf16;
        strategy.recompute = recompute;
        Trainer trainer(float_model(f), cross_entropy(), adam(), strategy);
        for (int step = 0; step < 5; ++step) trainer.step(make_batch(11, step, f));
        if (first.empty()) first = state_of(trainer);
        EXPECT_THAT(different(trainer, first), IsEmpty())
            << "K=" << ranks << " " << schedule << " recompute=" << static_cast<int>(recompute);
      }
    }
  }
}

TEST(Precision, Bf16EqualsAPlainLoopUnderAutocast) {
  const Batch batch = make_batch(8, 0, {});
  const Sequence reference = float_model({});
  {
    const AutocastScope autocast(torch::kCPU, Precision::kBf16);
    plain_gradients(reference, cross_entropy(), batch, 4, 0);
  }
  Strategy strategy = strategy_of(2, 4);
  strategy.precision = Precision::kBf16;
  Trainer trainer(float_model({}), cross_entropy(), sgd(), strategy);
  trainer.gradients(batch);
  EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-6);
  Trainer full(float_model({}), cross_entropy(), sgd(), strategy_of(2, 4));
  full.gradients(batch);
  EXPECT_GT(gradient_difference(full.model(), reference), 1e-4);  // it did compute in 16 bits
}

/// tanh of a product, LibTorch's or ours.
struct ProjectionImpl : torch::nn::Module {
  ProjectionImpl(int size, bool own)
      : linear(register_module("linear", torch::nn::Linear(size, size))), own_product(own) {}
  torch::Tensor forward(torch::Tensor x) {
    const auto& product = own_product ? accumulating_linear(x, linear->weight, linear->bias)
                                      : torch::linear(x, linear->weight, linear->bias);
    return torch::tanh(product);
  }
  torch::nn::Linear linear;
  bool own_product;
};
TORCH_MODULE(Projection);

Sequence projections(bool own) {
  torch::manual_seed(5);
  Sequence model;
  for (int i = 0; i < 6; ++i) model.add("fc" + std::to_string(i), Projection(kWidth, own));
  return model;
}

Batch numbers(int step) {
  torch::manual_seed(step);
  return {{torch::randn({8, kWidth})}, {torch::randint(kWidth, {8})}};
}

/// How far parameters are from one another at most.
double distance(const Trainer& a, const Sequence& b) {
  double most = 0;
  const auto of = b.named_parameters();
  const auto mine = a.model().named_parameters();
  for (std::size_t i = 0; i < of.size(); ++i)
    most = std::max(most, (mine[i].second - of[i].second).abs().max().item<double>());
  return most;
}

class OwnProducts : public testing::TestWithParam<const char*> {};

/// Copies of weights in 16 bits that somebody forgot to forget would show: weights go far.
TEST_P(OwnProducts, LearnAsLibTorchsDoInBf16) {
  Strategy strategy = strategy_of(2, 4, GetParam());
  strategy.precision = Precision::kBf16;
  const auto train = [&](bool own, RecomputeMode recompute) {
    strategy.recompute = recompute;
    auto trainer = std::make_unique<Trainer>(projections(own), cross_entropy(), sgd(0.2), strategy);
    for (int step = 0; step < 12; ++step) {
      trainer->step(numbers(step));
      if (step % 4 == 3) trainer->evaluate(numbers(100));
    }
    trainer->drain();
    return trainer;
  };
  const auto right = train(false, RecomputeMode::kNone);
  const auto ours = train(true, RecomputeMode::kNone);
  EXPECT_GT(distance(*ours, projections(true)), 0.1);
  EXPECT_LT(distance(*ours, right->model()), 0.02);
  EXPECT_THAT(different(*train(true, RecomputeMode::kAll), state_of(*ours)), IsEmpty());
  EXPECT_NEAR(ours->evaluate(numbers(100)).loss, right->evaluate(numbers(100)).loss, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Schedules, OwnProducts,
                         testing::Values("1f1b", "zb-h1", "pipedream", "pipedream-2bw"),
                         name_of_schedule<testing::TestParamInfo<const char*>>);

TEST(Precision, TheScaleOfTheLossDoesNotReachTheWeights) {
  Tensors first;
  for (const bool scaled : {false, true}) {
    Strategy strategy = strategy_of(2, 4);
    strategy.scale_loss = scaled;
    strategy.clip_norm = 0.5;
    Trainer trainer(make_model({}), cross_entropy(), sgd(), strategy);
    for (int step = 0; step < 5; ++step) {
      const StepResult result = trainer.step(make_batch(11, step, {}));
      EXPECT_EQ(result.loss_scale, scaled ? 32768 : 1);
      EXPECT_TRUE(result.updated);
    }
    if (first.empty()) first = state_of(trainer);
    EXPECT_THAT(different(trainer, first), IsEmpty());  // the scale is a power of two
  }
}

/// Passes x on; its gradient becomes infinite when told to.
struct OverflowFunction : torch::autograd::Function<OverflowFunction> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               std::int64_t flag) {
    context->saved_data["flag"] = flag;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* flag = reinterpret_cast<const bool*>(context->saved_data["flag"].toInt());
    return {*flag ? gradients[0] / 0 : gradients[0], torch::Tensor()};
  }
};

class Overflow : public testing::TestWithParam<int> {};  // the layer after which it happens

TEST_P(Overflow, OnAnyStageSkipsTheStepOnAll) {
  bool overflow = false;
  const auto make = [&](bool broken) {
    Sequence model;
    torch::manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      model.add("fc" + std::to_string(i), torch::nn::Linear(6, 6));
      if (!broken || i != GetParam()) continue;
      model.add("overflow", [&overflow](torch::Tensor x) {
        return OverflowFunction::apply(x, reinterpret_cast<std::int64_t>(&overflow));
      });
    }
    return model;
  };
  const auto batch = [](int step) {
    torch::manual_seed(step);
    return Batch{{torch::randn({8, 6})}, {torch::randint(6, {8})}};
  };
  Strategy strategy = strategy_of(3, 4, "zb-h1");
  strategy.scale_loss = true;
  strategy.loss_scaling.init_scale = 1024;
  strategy.loss_scaling.growth_interval = 2;
  Trainer trainer(make(true), cross_entropy(), adam(), strategy);
  Trainer healthy(make(false), cross_entropy(), adam(), strategy);
  std::vector<double> scales;
  for (int step = 0; step < 8; ++step) {
    overflow = step >= 2 && step < 5;
    const StepResult result = trainer.step(batch(step));
    EXPECT_EQ(result.skipped, overflow);
    EXPECT_EQ(result.updated, !overflow);
    scales.push_back(result.loss_scale);
    if (!overflow) healthy.step(batch(step));
    // Adam's moments too are as if the skipped steps had not been.
    EXPECT_THAT(different(trainer, state_of(healthy)), IsEmpty()) << "step " << step;
  }
  // Two good steps double it, the second overflow in a row halves it.
  EXPECT_THAT(scales, testing::ElementsAre(1024, 1024, 2048, 2048, 1024, 1024, 1024, 2048));
  EXPECT_EQ(trainer.num_updates(), 5);
  EXPECT_EQ(trainer.num_steps(), 8);
}

INSTANTIATE_TEST_SUITE_P(EveryStage, Overflow, testing::Values(0, 2, 4));

TEST(Precision, ASkippedStepLeavesBatchNormAsItWas) {
  Sequence model;
  model.add("fc", torch::nn::Linear(4, 4)).add("norm", torch::nn::BatchNorm1d(4));
  Strategy strategy = strategy_of(2, 2);
  strategy.scale_loss = true;
  Trainer trainer(model, mean_squared_error(), sgd(), strategy);
  trainer.step({{torch::randn({8, 4})}, {torch::randn({8, 4})}});
  const Tensors before = state_of(trainer);
  const auto bad = torch::full({8, 4}, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(trainer.step({{bad}, {torch::randn({8, 4})}}).skipped);
  EXPECT_THAT(different(trainer, before), IsEmpty());
}

TEST(Precision, RefusesWhatDoesNotRun) {
  Strategy strategy = strategy_of(2, 2);
  strategy.precision = Precision::kFp16;
  strategy.loss_scaling.backoff = 2;
  const auto message =
      refusal([&] { Trainer trainer(float_model({}), cross_entropy(), sgd(), strategy); });
#if TORCH_VERSION_MAJOR >= 2
  EXPECT_THAT(message, HasSubstr("backoff = 2; use more than 0 and at most 1"));
#else
  EXPECT_THAT(message, HasSubstr("kFp16 does not run on the CPU with this LibTorch; use kBf16"));
#endif
}

}  // namespace
}  // namespace pipewright
