// A planned budget is kept by the measured peak, and used where it helps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/profile/measure.h"
#include "tests/refusal.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

constexpr int kDim = 64;
constexpr int kTokens = 32;

Sequence transformer() {
  torch::manual_seed(1);
  Sequence model;
  for (int i = 0; i < 12; ++i) model.add("block" + std::to_string(i), Block(kDim));
  return model;
}

/// Layers of very different width.
Sequence skewed() {
  torch::manual_seed(2);
  Sequence model;
  const std::vector<int> widths = {kDim, 256, 64, 64, 384, 32, 128, 64, 64, 192};
  for (std::size_t i = 0; i < 3 * widths.size(); ++i) {
    const int from = widths[i % widths.size()];
    const int to = widths[(i + 1) % widths.size()];
    model.add("fc" + std::to_string(i), torch::nn::Linear(from, to));
    model.add("tanh" + std::to_string(i), torch::nn::Tanh());
  }
  return model;
}

Batch noise(int rows) {
  const std::vector<std::int64_t> shape = {rows, kTokens, kDim};
  torch::manual_seed(3);
  return {{torch::randn(shape)}, {torch::randn(shape)}};
}

Profile profile_of(const Sequence& model, int rows) {
  const Batch one = noise(rows);
  MeasureOptions options;
  options.repeats = 2;
  options.warm_up = 1;
  return measure_profile(model, mean_squared_error(), one.inputs, one.targets, options);
}

class Budget : public testing::TestWithParam<std::string> {
 protected:
  static Sequence make() { return GetParam() == "transformer" ? transformer() : skewed(); }
  /// Of a micro-batch: enough that activations outweigh parameters.
  static int rows() { return GetParam() == "transformer" ? 8 : 32; }
};

TEST_P(Budget, IsKeptByTheMeasuredPeakAndChangesNoBit) {
  constexpr int kMicroBatches = 4;
  const Profile profile = profile_of(make(), rows());
  for (int ranks = 1; ranks <= 3; ++ranks) {
    Strategy strategy = strategy_of(ranks, kMicroBatches);
    Trainer free(make(), mean_squared_error(), sgd(0.01, 0), strategy);
    std::int64_t most = 0;
    for (int step = 0; step < 2; ++step) {
      for (const std::int64_t bytes : free.step(noise(kMicroBatches * rows())).peak_bytes)
        most = std::max(most, bytes);
    }
    const Tensors expected = state_of(free);
    strategy.recompute = RecomputeMode::kBudget;
    strategy.profile = profile;
    int tried = 0;
    for (const double share : {1.2, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3}) {
      strategy.memory_budget = static_cast<std::int64_t>(share * static_cast<double>(most));
      SCOPED_TRACE(testing::Message() << "K=" << ranks << " share=" << share);
      std::unique_ptr<Trainer> trainer;
      const std::string why = refusal([&] {
        trainer = std::make_unique<Trainer>(make(), mean_squared_error(), sgd(0.01, 0), strategy);
      });
      if (trainer == nullptr) {
        EXPECT_THAT(why, HasSubstr("too little for rank"));
        continue;
      }
      ++tried;
      for (int step = 0; step < 2; ++step) {
        for (const std::int64_t bytes : trainer->step(noise(kMicroBatches * rows())).peak_bytes)
          EXPECT_LE(bytes, strategy.memory_budget);
      }
      EXPECT_THAT(different(*trainer, expected), testing::IsEmpty());
    }
    EXPECT_GE(tried, 3) << "K=" << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Budget, testing::Values("transformer", "skewed"),
                         [](const auto& test) { return test.param; });

TEST(BudgetMode, SaysWhatIsMissing) {
  Strategy strategy = strategy_of(2, 4);
  strategy.recompute = RecomputeMode::kBudget;
  const auto why = [&] {
    return refusal([&] { Trainer trainer(transformer(), mean_squared_error(), sgd(), strategy); });
  };
  EXPECT_THAT(why(), HasSubstr("memory_budget = 0; recompute = kBudget needs"));
  strategy.memory_budget = 1 << 20;
  EXPECT_THAT(why(), HasSubstr("the profile has 0 layers and the model 12"));
  strategy.profile = profile_of(transformer(), 8);
  EXPECT_THAT(why(), testing::AllOf(HasSubstr("memory_budget = 1 MiB is too little for rank 0"),
                                    HasSubstr("would do with")));
}

}  // namespace
}  // namespace pipewright
