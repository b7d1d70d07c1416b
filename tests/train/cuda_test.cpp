// The promises on a GPU, with several stages on it: gradients, randomness, memory, precision, and
// stages on the CPU beside stages on the GPU. Skipped where there is none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/memory/meter.h"
#include "pipewright/optim/adam.h"
#include "pipewright/schedule/schedule.h"
#include "tests/refusal.h"
#include "tests/train/delayed_reference.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const torch::Device kGpu(torch::kCUDA, 0);

Strategy gpu_strategy(int ranks, int micro_batches, const std::string& schedule = "1f1b") {
  Strategy strategy = strategy_of(ranks, micro_batches, schedule);
  strategy.devices = {"cuda:0"};
  return strategy;
}

/// On a machine without a GPU there is nothing to run these on; docs/engine.md says how to run them
/// on one that has it.
class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  }
};

class CudaSchedules : public Cuda, public testing::WithParamInterface<std::string> {};

TEST_P(CudaSchedules, GradientsEqualSingleDeviceTraining) {
  for (const Features& f :
       {Features{}, Features{.skips = true, .tied = true},
        Features{.skips = true, .tied = true, .batch_norm = true, .dropout = true}}) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
        SCOPED_TRACE(testing::Message() << "K=" << ranks << " dropout=" << f.dropout
                                        << " recompute=" << static_cast<int>(recompute));
        const Batch batch = make_batch(11, 0, f);
        const Sequence reference = make_model(f);
        move_to(reference, kGpu);
        plain_gradients(reference, cross_entropy(), batch, f.dropout ? 4 : 1, 0);
        Strategy strategy = gpu_strategy(ranks, 4, GetParam());
        strategy.recompute = recompute;
        Trainer trainer(make_model(f), cross_entropy(), sgd(), strategy);
        trainer.gradients(batch);
        EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-10);
      }
    }
  }
}

/// Kernels here are small and deterministic, but for the embedding's, which this model leaves out:
/// so even on a GPU the bits are the same.
TEST_P(CudaSchedules, WeightsAreTheSameForEveryPartition) {
  const auto make = [] {
    torch::manual_seed(8);
    Sequence model;
    for (int i = 0; i < 6; ++i) {
      model.add("fc" + std::to_string(i), torch::nn::Linear(32, 32));
      model.add("norm" + std::to_string(i), torch::nn::BatchNorm1d(32));
      model.add("drop" + std::to_string(i), torch::nn::Dropout(0.2));
      model.add("tanh" + std::to_string(i), torch::nn::Tanh());
    }
    return model;
  };
  Tensors first;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    if (ranks == 4 && find_schedule(GetParam()).name == "zb-v") continue;
    for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
      Strategy strategy = gpu_strategy(ranks, 4, GetParam());
      strategy.recompute = recompute;
      strategy.clip_norm = 0.5;
      Trainer trainer(make(), mean_squared_error(), adam(), strategy);
      torch::manual_seed(9);
      for (int step = 0; step < 5; ++step)
        trainer.step({{torch::randn({64, 32})}, {torch::randn({64, 32})}});
      if (first.empty()) first = state_of(trainer);
      EXPECT_THAT(different(trainer, first), testing::IsEmpty())
          << "K=" << ranks << " recompute=" << static_cast<int>(recompute);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaSchedules,
                         testing::Values("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1",
                                         "zb-h2", "zb-v"),
                         name_of_schedule<testing::TestParamInfo<std::string>>);

/// By definition on the CPU, by the pipeline on the GPU: in 64 bits the same but for rounding.
TEST_F(Cuda, DelayedWeightsAreThoseOfTheDefinition) {
  for (const auto& [schedule, micro_batches] : {std::pair("pipedream", 1),
                                                {"pipedream", 2},
                                                {"pipedream-2bw", 4},
                                                {"eager-pipedream-2bw", 5}}) {
    for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
      SCOPED_TRACE(fmt::format("{} M={} recompute={}", schedule, micro_batches,
                               static_cast<int>(recompute)));
      Delayed delayed;
      delayed.optimizer = adam();
      delayed.drain_every = 7;
      delayed.strategy = strategy_of(3, micro_batches, schedule);
      delayed.strategy.recompute = recompute;
      const State expected = train_by_definition(delayed, {});
      delayed.strategy.devices = {"cuda:0"};
      const State actual = train_over_pipeline(delayed, {});
      ASSERT_EQ(actual.size(), expected.size());
      for (const auto& [name, tensor] : expected) {
        const auto difference = (actual.at(name).cpu() - tensor).abs().max().item<double>();
        EXPECT_LE(difference, 1e-9 * tensor.abs().max().item<double>()) << name;
      }
    }
  }
}

TEST_F(Cuda, AnEmbeddingOnTheCpuFeedsStagesOnTheGpu) {
  const auto make = [](bool guarded) {
    torch::manual_seed(5);
    Sequence model;
    const auto in = [&](int stage, torch::Device device) {
      return guarded ? model.stage(stage, device) : model.stage(stage);
    };
    {
      const auto guard = in(0, torch::kCPU);
      model.add("embed", torch::nn::Embedding(kVocabulary, kWidth));
      model.add("twin", Twin(kWidth), {.stash = {"a"}});
    }
    {
      const auto guard = in(1, kGpu);
      model.add("block", Block(kWidth));
    }
    {
      const auto guard = in(2, kGpu);
      model.add("join", Join(kWidth), {.pop = {"a"}});
      model.add("head", torch::nn::Linear(kWidth, kVocabulary));
    }
    for (const Layer& layer : model.layers()) layer.module->to(torch::kFloat64);
    return model;
  };
  const Batch batch = make_batch(11, 0, {});
  const Sequence reference = make(false);
  plain_gradients(reference, cross_entropy(), batch, 1, 0);
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
      Strategy strategy = strategy_of(3, 4, schedule);
      strategy.recompute = recompute;
      Trainer trainer(make(true), cross_entropy(), sgd(), strategy);
      EXPECT_TRUE(trainer.model().layers()[0].module->parameters()[0].is_cpu());
      EXPECT_TRUE(trainer.model().layers()[4].module->parameters()[0].is_cuda());
      trainer.gradients(batch);
      EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-10);
      for (int step = 0; step < 3; ++step) EXPECT_TRUE(trainer.step(batch).updated);
    }
  }
}

TEST_F(Cuda, RefusesATiedWeightOnTwoDevices) {
  Strategy strategy = strategy_of(2, 2);
  strategy.devices = {"cpu", "cuda:0"};
  EXPECT_THAT(refusal([&] {
                Trainer trainer(make_model({.tied = true}), cross_entropy(), sgd(), strategy);
              }),
              HasSubstr("layers 'embed' and 'head' share a parameter, but are on cpu and cuda:0"));
}

TEST_F(Cuda, BatchesMayComeFromEitherDevice) {
  Trainer trainer(make_model({}), cross_entropy(), sgd(), gpu_strategy(2, 4));
  const Batch batch = make_batch(11, 0, {});
  const Batch there{{batch.inputs[0].to(kGpu)}, {batch.targets[0].to(kGpu)}};
  const double loss = trainer.gradients(batch).loss;
  for (const auto& [name, parameter] : trainer.model().named_parameters())
    parameter.mutable_grad() = torch::Tensor();
  EXPECT_EQ(trainer.gradients(there).loss, loss);
  EXPECT_TRUE(trainer.predict(batch.inputs)[0].is_cuda());
}

/// Large enough that a GPU allocates for the activations what it should.
Sequence tanh_chain() {
  Sequence model;
  model.add("scale", torch::nn::LayerNorm(torch::nn::LayerNormOptions({1024})));
  for (int i = 0; i < 63; ++i) model.add("tanh" + std::to_string(i), torch::nn::Tanh());
  return model;
}

TEST_F(Cuda, PeaksFollowTheFormulasAndLiveBytesComeBack) {
  constexpr std::int64_t kTensor = 256 * 1024 * 4;
  constexpr int kMicroBatches = 8;
  const auto noise = torch::randn({256 * kMicroBatches, 1024}, kGpu);
  const Batch batch{{noise}, {torch::zeros_like(noise)}};
  std::map<std::string, std::vector<std::int64_t>> peaks;
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    Strategy strategy = gpu_strategy(2, kMicroBatches, schedule);
    strategy.sizes = {32, 32};
    Trainer trainer(tanh_chain(), mean_squared_error(), sgd(0.01, 0), strategy);
    trainer.step(batch);
    const auto live = [&] {
      std::int64_t sum = 0;
      for (int slot = 0; slot < 64; ++slot) sum += MemoryMeter::stats(slot).live_bytes;
      return sum;
    };
    const std::int64_t before = live();
    for (int step = 0; step < 20; ++step) {
      peaks[schedule] = trainer.step(batch).peak_bytes;
      EXPECT_EQ(live(), before) << schedule;
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    EXPECT_GE(peaks["gpipe"][r], kMicroBatches * 30 * kTensor);
    EXPECT_LE(peaks["gpipe"][r], (kMicroBatches * 34 + 6) * kTensor);
    EXPECT_GE(peaks["1f1b"][r], (2 - rank) * 30 * kTensor);
    EXPECT_LE(peaks["1f1b"][r], ((2 - rank) * 34 + 6) * kTensor);
  }
}

/// Offload changes where kept inputs lie, and nothing else.
TEST_F(Cuda, OffloadChangesNoBitAndHoldsLess) {
  const auto make = [] {
    torch::manual_seed(1);
    Sequence model;
    for (int i = 0; i < 12; ++i) model.add("block" + std::to_string(i), Block(256));
    return model;
  };
  const auto noise = torch::randn({64, 128, 256}, kGpu);
  for (int ranks = 1; ranks <= 2; ++ranks) {
    for (const auto mode : {RecomputeMode::kAll, RecomputeMode::kEvery, RecomputeMode::kSqrt}) {
      Strategy strategy = gpu_strategy(ranks, 4);
      strategy.recompute = mode;
      Tensors expected;
      std::int64_t held = 0;
      for (const bool offload : {false, true}) {
        strategy.offload = offload;
        Trainer trainer(make(), mean_squared_error(), adam(), strategy);
        std::int64_t peak = 0;
        for (int step = 0; step < 3; ++step) peak = trainer.step({{noise}, {noise}}).peak_bytes[0];
        if (!offload) {
          expected = state_of(trainer);
          held = peak;
          continue;
        }
        EXPECT_THAT(different(trainer, expected), testing::IsEmpty()) << "K=" << ranks;
        // Of many kept inputs, all but those at hand are gone.
        if (mode == RecomputeMode::kEvery) {
          EXPECT_LT(peak, held - 4 * 16 * 128 * 256 * 4) << "K=" << ranks;
        }
      }
    }
  }
}

TEST_F(Cuda, FusedAdamIsAdam) {
  for (const bool amsgrad : {false, true}) {
    torch::manual_seed(4);
    std::vector<torch::Tensor> one, other;
    for (const int size : {3, 1000, 70000}) {
      one.push_back(torch::randn({size}, torch::dtype(torch::kFloat64).device(kGpu)));
      other.push_back(one.back().clone());
    }
    const auto options =
        torch::optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(amsgrad).betas({0.8, 0.9});
    FusedAdam fused(one, options);
    torch::optim::Adam plain(other, options);
    for (int step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < one.size(); ++i) {
        one[i].mutable_grad() = torch::randn_like(one[i]);
        other[i].mutable_grad() = one[i].grad().clone();
      }
      fused.step();
      plain.step();
    }
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(torch::allclose(one[i], other[i], 1e-12, 1e-12)) << "amsgrad=" << amsgrad;
  }
}

TEST_F(Cuda, TheTimelineIsTheGpusOwn) {
  Trainer trainer(tanh_chain(), mean_squared_error(), sgd(0.01, 0), gpu_strategy(2, 4));
  const auto noise = torch::randn({1024, 1024}, kGpu);
  trainer.step({{noise}, {noise}});
  const StepResult result = trainer.step({{noise}, {noise}});
  ASSERT_EQ(result.timeline.ranks.size(), 2U);
  for (const auto& spans : result.timeline.ranks) {
    double last = 0;
    for (const Span& span : spans) {
      EXPECT_GE(span.end, span.start);
      EXPECT_GE(span.start, last - 1e-5);
      EXPECT_LE(span.end, result.seconds + 1e-3);
      last = span.end;
    }
  }
}

TEST_F(Cuda, Fp16TrainsWithAScaledLossAndSkipsOverflows) {
  for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
    Strategy strategy = gpu_strategy(3, 4, "zb-h1");
    strategy.precision = Precision::kFp16;
    strategy.recompute = recompute;
    strategy.loss_scaling.init_scale = 65536.0 * 65536.0;  // overflows at once
    torch::manual_seed(1);
    Sequence model;
    model.add("in", torch::nn::Linear(16, 64)).add("gelu", torch::nn::GELU());
    model.add("mid", torch::nn::Linear(64, 64)).add("tanh", torch::nn::Tanh());
    model.add("out", torch::nn::Linear(64, 4));
    Trainer trainer(model, cross_entropy(), adam(), strategy);
    const auto x = torch::randn({64, 16}, kGpu);
    const auto y = x.slice(1, 0, 4).argmax(1);
    const Tensors before = state_of(trainer);
    StepResult result = trainer.step({{x}, {y}});
    EXPECT_TRUE(result.skipped);
    EXPECT_THAT(different(trainer, before), testing::IsEmpty());
    const double first_loss = result.loss;
    int skipped = 1;
    for (int step = 0; step < 120; ++step) {
      result = trainer.step({{x}, {y}});
      skipped += result.skipped ? 1 : 0;
    }
    EXPECT_LT(result.loss_scale, strategy.loss_scaling.init_scale);
    EXPECT_LT(skipped, 60);
    EXPECT_LT(result.loss, first_loss / 4);
    EXPECT_EQ(trainer.num_updates(), 121 - skipped);
  }
}

TEST_F(Cuda, Bf16IsTheSameWithAndWithoutRecompute) {
  Tensors first;
  for (const auto recompute : {RecomputeMode::kNone, RecomputeMode::kAll}) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      Strategy strategy = gpu_strategy(ranks, 4);
      strategy.precision = Precision::kBf16;
      strategy.recompute = recompute;
      torch::manual_seed(1);
      Sequence model;
      for (int i = 0; i < 5; ++i) {
        model.add("fc" + std::to_string(i), torch::nn::Linear(64, 64));
        model.add("drop" + std::to_string(i), torch::nn::Dropout(0.1));
      }
      Trainer trainer(model, mean_squared_error(), sgd(), strategy);
      torch::manual_seed(2);
      for (int step = 0; step < 5; ++step)
        trainer.step({{torch::randn({32, 64})}, {torch::randn({32, 64})}});
      if (first.empty()) first = state_of(trainer);
      EXPECT_THAT(different(trainer, first), testing::IsEmpty()) << "K=" << ranks;
    }
  }
}

TEST_F(Cuda, RunningOutOfMemoryNamesTheStageAndTheTrainerGoesOn) {
  bool greedy = true;
  Sequence model = make_model({});
  model.add("greedy", [&](torch::Tensor x) {
    if (greedy) torch::empty({std::int64_t{1} << 40}, x.options());
    return x;
  });
  Trainer trainer(model, cross_entropy(), sgd(), gpu_strategy(2, 4));
  try {
    trainer.step(make_batch(8, 0, {}));
    FAIL() << "2^43 bytes are not to be had";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 1, stage 1, 1F0 (forward): out of memory"),
                      HasSubstr("recompute = kAll"), HasSubstr("micro_batches above 4")));
  }
  greedy = false;
  EXPECT_TRUE(trainer.step(make_batch(8, 0, {})).updated);
}

TEST_F(Cuda, AFailureInABackwardReachesTheCaller) {
  struct Thrower : torch::autograd::Function<Thrower> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) {
      return x.clone();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list) {
      throw std::runtime_error("the fuse blew backwards");
    }
  };
  bool on = true;
  Sequence model = make_model({});
  model.add("fuse", [&](torch::Tensor x) { return on ? Thrower::apply(x) : x; });
  Trainer trainer(model, cross_entropy(), sgd(), gpu_strategy(3, 4));
  EXPECT_THAT(refusal([&] { trainer.step(make_batch(8, 0, {})); }),
              AllOf(HasSubstr("stage 2"), HasSubstr("the fuse blew backwards")));
  on = false;
  EXPECT_TRUE(trainer.step(make_batch(8, 0, {})).updated);
}

}  // namespace
}  // namespace pipewright
