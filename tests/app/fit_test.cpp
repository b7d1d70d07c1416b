// What a strategy takes from the model: splits, recompute by names and budgets, plans.

#include "pipewright/app/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "pipewright/app/run.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/config/problem.h"
#include "pipewright/config/read.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/run/report.h"
#include "tests/checkpoint/sample.h"

namespace pipewright::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_checkpoint::TempFolder;

constexpr const char* kConfig = R"(
[model]
name = "gpt"
layers = 4
dim = 16
seq = 16
[data]
name = "text"
batch = 8
tokens = 2000
[train]
steps = 3
[pipeline]
ranks = 2
micro_batches = 4
threads_per_rank = 1
)";

config::Config config_of(const std::vector<std::string>& overrides) {
  return config::read_text(kConfig, "test.toml", overrides, catalog::known());
}

Ending run(const std::string& dir, const std::vector<std::string>& overrides,
           const std::optional<Plan>& plan = {}) {
  return train(config_of(overrides), dir, false, {}, plan);
}

/// What is wrong, with its place in the file.
std::string problem_of(const std::vector<std::string>& overrides) {
  const TempFolder dir;
  config::Places places;
  const config::Config config =
      config::read_text(kConfig, "test.toml", overrides, catalog::known(), &places);
  try {
    train(config, dir / "run", false, {});
  } catch (const config::KeyError& error) {
    EXPECT_FALSE(std::filesystem::exists(dir / "run")) << "something was started";
    return places.located(error).problems().at(0);
  }
  return "no error";
}

LayerCost layer(std::int64_t parameters, std::int64_t saved) {
  LayerCost cost;
  cost.parameter_bytes = parameters;
  cost.saved_bytes = saved;
  return cost;
}

TEST(SplitByBytes, CountsWhatTheScheduleHolds) {
  Profile profile;
  for (int i = 0; i < 6; ++i) profile.layers.push_back(layer(10, 10));
  EXPECT_THAT(split_by_bytes(profile, {1, 1}), ElementsAre(3, 3));
  // The first stage holds five micro-batches: 2 x (10 + 50) against 4 x (10 + 10).
  EXPECT_THAT(split_by_bytes(profile, {5, 1}), ElementsAre(1, 5));
  EXPECT_THAT(split_by_bytes(profile, {3, 1}), ElementsAre(2, 4));
  profile.layers.back() = layer(1000, 0);
  EXPECT_THAT(split_by_bytes(profile, {1, 1, 1}), ElementsAre(2, 3, 1));
}

TEST(Partition, EverySplitEndsWithTheSameWeights) {
  const TempFolder dir;
  const Ending expected = run(dir / "one", {"pipeline.ranks=1"});
  for (const char* by : {"time", "memory", "estimate", "parameters"}) {
    const Ending ending = run(dir / by, {std::string("pipeline.partition=") + by});
    EXPECT_EQ(ending.weights_sha256, expected.weights_sha256) << by;
    const RunRecord record = read_run(dir / by);
    ASSERT_TRUE(record.plan);
    EXPECT_EQ(std::accumulate(record.plan->sizes.begin(), record.plan->sizes.end(), 0), 7);
    const bool measured = by == std::string("time") || by == std::string("memory");
    EXPECT_EQ(record.profile.has_value(), measured) << by;
    EXPECT_EQ(record.plan->step_seconds > 0, measured) << by;
    EXPECT_EQ(record.plan->peak_bytes.size(), measured ? 2U : 0U) << by;
    EXPECT_EQ(record.predicted.has_value(), measured) << by;
  }
}

TEST(Partition, ByParametersFollowsTheirNumber) {
  const TempFolder dir;
  // 4,416 in the embedding, 3,280 a block, 32 in the norm, 4,160 in the head: 10,976 and 10,752.
  run(dir / "run", {"pipeline.partition=parameters", "pipeline.ranks=2"});
  const Plan plan = *read_run(dir / "run").plan;
  EXPECT_THAT(plan.sizes, ElementsAre(3, 4));
}

TEST(Recompute, EveryModeEndsWithTheSameWeights) {
  const TempFolder dir;
  const Ending expected = run(dir / "none", {});
  const std::vector<std::vector<std::string>> modes = {
      {"recompute.mode=all"},
      {"recompute.mode=except_last"},
      {"recompute.mode=every", "recompute.every=2"},
      {"recompute.mode=sqrt"},
      {"recompute.mode=named", "recompute.checkpoints=[\"block1\", \"block3\"]"},
      {"recompute.mode=budget", "recompute.budget=\"1GiB\""}};
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const Ending ending = run(dir / std::to_string(i), modes[i]);
    EXPECT_EQ(ending.weights_sha256, expected.weights_sha256) << modes[i].front();
  }
}

/// The least that does, as the refusal says it, is enough; the measured peak keeps to it.
TEST(Recompute, ABudgetIsKeptOrRefusedWithWhatWouldDo) {
  // Rank 0 has nearly all blocks, and two micro-batches in flight: where computing again helps.
  const std::vector<std::string> split = {"pipeline.partition=manual", "pipeline.sizes=[5, 2]",
                                          "data.batch=32"};
  std::vector<std::string> small = split;
  small.insert(small.end(), {"recompute.mode=budget", "recompute.budget=1000"});
  const std::string problem = problem_of(small);
  EXPECT_THAT(problem, HasSubstr("recompute.budget: 1000 B is too little for rank "));
  EXPECT_THAT(problem, HasSubstr("in all; write at least that"));
  const TempFolder dir;
  const Ending plain = run(dir / "none", split);
  ASSERT_GT(plain.peak_bytes[0], plain.peak_bytes[1]);
  const std::int64_t budget = plain.peak_bytes[0] * 95 / 100;
  std::vector<std::string> tight = split;
  tight.insert(tight.end(),
               {"recompute.mode=budget", "recompute.budget=" + std::to_string(budget)});
  const Ending ending = run(dir / "budget", tight);
  EXPECT_EQ(ending.weights_sha256, plain.weights_sha256);
  for (const std::int64_t bytes : ending.peak_bytes) EXPECT_LE(bytes, budget);
  EXPECT_EQ(read_run(dir / "budget").plan->memory_bytes, budget);
}

TEST(Problems, AreToldWithTheirPlaceBeforeAnythingStarts) {
  EXPECT_EQ(problem_of({"pipeline.ranks=9"}),
            "--set pipeline.ranks=9: pipeline.ranks: cannot split 7 layers into 9 stages; write 7 "
            "or less");
  EXPECT_THAT(
      problem_of({"pipeline.partition=manual", "pipeline.sizes=[3, 3]"}),
      HasSubstr("pipeline.sizes: 3 + 3 are 6 layers, and the model has 7 (embed, block0, "));
  EXPECT_THAT(problem_of({"recompute.mode=named", "recompute.checkpoints=[\"blok1\"]"}),
              HasSubstr("\"blok1\" is no layer of the model; did you mean \"block1\"?"));
  EXPECT_THAT(problem_of({"pipeline.devices=[\"cuda:99\"]"}),
              HasSubstr("pipeline.devices: there is no \"cuda:99\": LibTorch sees "));
}

TEST(Plans, AreRunKeptAndReportedOn) {
  const TempFolder dir;
  Plan plan;
  plan.model = "gpt";
  plan.schedule = "zb-h1";
  plan.ranks = 3;
  plan.micro_batches = 2;
  plan.global_batch = 8;
  plan.micro_batch_size = 4;
  plan.sizes = {2, 2, 3};
  plan.operations = {keep_checkpoints(2, {1}, false), save_everything(2), save_everything(3)};
  plan.offload = {0, 0, 0};
  plan.step_seconds = 0.5;
  plan.bubble_fraction = 0.25;
  plan.peak_bytes = {1000, 2000, 3000};
  const Ending planned = run(dir / "planned", {}, plan);
  EXPECT_EQ(planned.peak_bytes.size(), 3U);
  EXPECT_EQ(planned.weights_sha256,
            run(dir / "plain", {"pipeline.ranks=1", "pipeline.micro_batches=2"}).weights_sha256);
  RunRecord record = read_run(dir / "planned");
  EXPECT_EQ(*record.plan, plan);
  EXPECT_TRUE(record.profile);
  const RunReport report = make_report(std::move(record));
  EXPECT_EQ(report.headline.predicted_step_seconds, 0.5);
  EXPECT_EQ(report.headline.predicted_bubble_fraction, 0.25);
  EXPECT_THAT(report.headline.predicted_peak_bytes, ElementsAre(1000, 2000, 3000));
  EXPECT_EQ(report.headline.stage_peak_bytes.size(), 3U);
  EXPECT_EQ(config::read(dir / "planned/config.toml", {}, catalog::known()).pipeline.ranks, 3);
}

TEST(Plans, OfAnotherBatchOrModelAreRefused) {
  const auto problem = [](const Plan& plan, const std::vector<std::string>& overrides) {
    const TempFolder dir;
    try {
      run(dir / "run", overrides, plan);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  Plan plan;
  plan.global_batch = 16;
  plan.sizes = {7};
  EXPECT_EQ(problem(plan, {}),
            "[plan] it is for batches of 16, and a pipeline of this config has 8; plan again, or "
            "--set data.batch=16");
  EXPECT_THAT(problem(plan, {"data.batch=16", "model.layers=5"}),
              HasSubstr("[plan] it does not fit: pipeline.sizes: 7 are 7 layers, and the model has "
                        "8"));
  plan.ranks = 7;
  plan.sizes.assign(7, 1);
  EXPECT_THAT(problem(plan, {"data.batch=16", "pipeline.devices=[\"cpu\", \"cpu\"]"}),
              HasSubstr("[plan] it does not go with the config: pipeline.devices: 2 devices for "
                        "ranks = 7"));
}

}  // namespace
}  // namespace pipewright::app
