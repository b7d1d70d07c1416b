// verify(): every way to train held to plain training, and what it says of layers that misbehave.

#include "pipewright/app/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "pipewright/catalog/catalog.h"
#include "pipewright/config/read.h"

namespace pipewright::app {
namespace {

using testing::HasSubstr;

constexpr int kWidth = 5;

/// A layer to put into the middle of the model.
using Middle = std::function<torch::Tensor(torch::Tensor)>;

Sequence layers(const Middle& middle) {
  torch::manual_seed(3);
  Sequence model;
  model.add("first", torch::nn::Linear(kWidth, kWidth));
  model.add("tanh", torch::nn::Tanh());
  if (middle) model.add("middle", middle);
  model.add("second", torch::nn::Linear(kWidth, kWidth));
  model.add("relu", torch::nn::ReLU());
  model.add("last", torch::nn::Linear(kWidth, 3));
  return model;
}

Subject subject(const Middle& middle = {}) {
  Subject subject;
  subject.make = [middle] { return layers(middle); };
  subject.loss = cross_entropy();
  subject.optimizer = [](const Parameters& p) {
    return std::make_unique<torch::optim::SGD>(p, 0.1);
  };
  subject.strategy.ranks = 2;
  subject.strategy.micro_batches = 3;
  subject.recompute = "none";
  torch::manual_seed(4);
  for (int step = 0; step < 2; ++step)
    subject.batches.push_back({{torch::randn({8, kWidth})}, {torch::randint(3, {8})}});
  return subject;
}

Verification verified(const Subject& subject, const VerifyOptions& options = {}) {
  return verify(subject, options, {});
}

TEST(Verify, PlainModelsPassInEveryWay) {
  std::vector<std::string> told;
  const Subject plain = subject();
  const Verification result =
      verify(plain, {}, [&](const VerifiedCase& one) { told.push_back(one.name()); });
  EXPECT_TRUE(result.passed());
  EXPECT_TRUE(result.bitwise());
  EXPECT_EQ(result.dtype, "float64");
  EXPECT_LE(result.max_relative_difference(), 1e-12);
  EXPECT_EQ(result.first_failed(), nullptr);
  EXPECT_EQ(told.size(), result.cases.size());
  std::set<std::string> schedules;
  std::set<std::string> modes;
  std::set<int> ranks;
  for (const VerifiedCase& one : result.cases) {
    schedules.insert(one.schedule);
    modes.insert(one.recompute);
    ranks.insert(one.ranks);
  }
  const auto all = catalog::known().schedules;
  const auto synchronous = static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.asynchronous; }));
  EXPECT_EQ(schedules.size(), synchronous);
  EXPECT_THAT(modes, testing::ElementsAre("all", "every", "except_last", "none", "sqrt"));
  EXPECT_THAT(ranks, testing::ElementsAre(1, 2, 3, 4));
}

TEST(Verify, RandomDrawsAreComparedByMicroBatch) {
  const Verification result =
      verified(subject([](torch::Tensor x) { return torch::dropout(x, 0.5, true); }));
  EXPECT_TRUE(result.passed());
  EXPECT_THAT(result.reference, HasSubstr("the same micro-batches"));
}

TEST(Verify, NamesTheLayerThatMixesSamples) {
  const Verification result =
      verified(subject([](torch::Tensor x) { return x - x.mean(0, true); }));
  ASSERT_FALSE(result.passed());
  const VerifiedCase& failed = *result.first_failed();
  ASSERT_TRUE(failed.gradients);
  EXPECT_EQ(failed.gradients->layer, "first");
  EXPECT_EQ(failed.gradients->tensor, "first.weight");
  EXPECT_GT(failed.gradients->relative, 1e-3);
  EXPECT_THAT(failed.gradients->words(), HasSubstr("layer 'middle' makes other outputs of parts"));
  EXPECT_FALSE(failed.bits) << "all cases see the same micro-batches";
}

/// Each run of the layer gives another result: recompute makes other activations than the forward.
TEST(Verify, NamesTheLayerThatIsNotRepeatable) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  const Verification result = verified(
      subject([calls](torch::Tensor x) { return x * (1 + 1e-3 * (calls->fetch_add(1) % 7)); }));
  ASSERT_FALSE(result.passed());
  EXPECT_FALSE(result.bitwise());
  const auto other = std::find_if(result.cases.begin(), result.cases.end(),
                                  [](const VerifiedCase& one) { return one.bits.has_value(); });
  ASSERT_NE(other, result.cases.end());
  EXPECT_THAT(other->bits->words(), HasSubstr("layer 'middle' gives other outputs when it is run "
                                              "again with the same inputs"));
  EXPECT_FALSE(other->bits->tensor.empty());
  EXPECT_GT(other->bits->relative, 0);
}

/// Wrong in the pipeline alone: run by itself the layer is right, so that nothing is known but
/// where it shows first.
TEST(Verify, NamesTheFirstGradientWhereNoLayerExplainsIt) {
  const auto here = std::this_thread::get_id();
  const Verification result = verified(subject(
      [here](torch::Tensor x) { return std::this_thread::get_id() == here ? x : x * 1.001; }));
  ASSERT_FALSE(result.passed());
  EXPECT_TRUE(result.bitwise());
  const Difference& difference = *result.first_failed()->gradients;
  EXPECT_EQ(difference.tensor, "first.weight");
  EXPECT_NEAR(difference.relative, 1e-3, 5e-3);
  EXPECT_EQ(difference.cause, "");
  EXPECT_THAT(difference.words(), HasSubstr("the gradient of 'first.weight', in layer 'first', is "
                                            "the first that differs"));
}

TEST(Verify, AToleranceOfZeroIsNotMet) {
  VerifyOptions options;
  options.tolerance = 0;
  const Verification result = verified(subject(), options);
  ASSERT_FALSE(result.passed());
  EXPECT_TRUE(result.bitwise());
  EXPECT_LE(result.max_relative_difference(), 1e-12);
  EXPECT_TRUE(result.first_failed()->gradients->cause.empty());
}

TEST(Verify, ModelsThatDoNotRunInFloat64AreComparedInFloat32) {
  const auto table = torch::ones({kWidth, kWidth}) * 0.3;
  const Verification result =
      verified(subject([table](torch::Tensor x) { return torch::matmul(x, table); }));
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.dtype, "float32");
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_THAT(result.notes[0], HasSubstr("does not run in float64"));
}

TEST(Verify, FullTriesEveryModeWithEverySchedule) {
  VerifyOptions options;
  options.full = true;
  const Subject plain = subject();
  const std::size_t few = verified(plain).cases.size();
  const Verification all = verified(plain, options);
  EXPECT_TRUE(all.passed());
  EXPECT_GT(all.cases.size(), 3 * few);
}

TEST(Verify, TheConfigsOwnWayIsAmongTheCases) {
  const config::Config config = config::read_text(R"(
[model]
name = "gpt"
layers = 2
dim = 16
seq = 8
dropout = 0.1
[data]
name = "text"
batch = 5
tokens = 500
[train]
steps = 4
[pipeline]
ranks = 2
micro_batches = 2
[recompute]
mode = "named"
checkpoints = ["block1"]
)",
                                                  "test.toml", {}, catalog::known());
  const Verification result = verify_config(config, {}, {}, {});
  EXPECT_TRUE(result.passed());
  EXPECT_TRUE(result.bitwise());
  EXPECT_EQ(result.cases.at(1).recompute, "named");
  EXPECT_EQ(result.cases.at(1).ranks, 2);
}

}  // namespace
}  // namespace pipewright::app
