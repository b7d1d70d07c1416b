// Whole runs from configs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>

#include "pipewright/app/run.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/checkpoint/reader.h"
#include "pipewright/config/read.h"
#include "pipewright/input/npy.h"
#include "pipewright/run/folder.h"
#include "tests/checkpoint/sample.h"

namespace pipewright::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_checkpoint::TempFolder;

constexpr const char* kGpt = R"(
seed = 3
[model]
name = "gpt"
layers = 2
dim = 16
seq = 16
dropout = 0.1
[data]
name = "text"
batch = 6
tokens = 1000
validation_tokens = 200
[train]
steps = 12
lr = 0.01
warmup = 3
schedule = "cosine"
clip_norm = 1.0
[pipeline]
ranks = 2
micro_batches = 3
threads_per_rank = 1
[log]
every = 1
)";

constexpr const char* kBert = R"(
[model]
name = "bert"
layers = 1
dim = 16
seq = 12
[data]
name = "masked_text"
batch = 6
tokens = 1000
[train]
epochs = 1
lr = 0.01
optimizer = "sgd"
[pipeline]
ranks = 2
micro_batches = 2
threads_per_rank = 1
)";

config::Config config_of(const char* text, const std::vector<std::string>& overrides = {}) {
  return config::read_text(text, "test.toml", overrides, catalog::known());
}

Ending run(const std::string& dir, const char* text, const std::vector<std::string>& overrides = {},
           bool resume = false, const Hooks& hooks = {}) {
  return train(config_of(text, overrides), dir, resume, hooks);
}

TEST(Train, EndsWithTheSameWeightsForEveryPipeline) {
  const TempFolder dir;
  const Ending expected = run(dir / "one", kGpt, {"pipeline.ranks=1"});
  ASSERT_TRUE(expected.weights_sha256);
  const std::vector<std::vector<std::string>> others = {
      {"pipeline.ranks=1", "recompute.mode=all"},
      {"pipeline.ranks=2"},
      {"pipeline.ranks=3", "pipeline.schedule=zb-h1"},
      {"pipeline.ranks=2", "pipeline.schedule=interleaved-1f1b", "pipeline.chunks=2"},
      {"data.workers=0"}};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Ending ending = run(dir / std::to_string(i), kGpt, others[i]);
    EXPECT_EQ(ending.weights_sha256, expected.weights_sha256) << testing::PrintToString(others[i]);
    EXPECT_EQ(ending.final_loss, expected.final_loss);
  }
  const Ending other = run(dir / "other", kGpt, {"seed=4"});
  EXPECT_NE(other.weights_sha256, expected.weights_sha256);
}

TEST(Train, ARunThatWasStoppedAnywhereEndsAsOneThatWasNot) {
  const TempFolder dir;
  const std::vector<std::string> validating = {"train.validate_every=5",
                                               "train.validate_batches=1"};
  const Ending expected = run(dir / "whole", kGpt, validating);
  for (const int stop : {1, 4, 7, 11}) {
    const std::string folder = dir / ("stopped" + std::to_string(stop));
    int done = 0;
    Hooks hooks;
    hooks.step = [&](const StepMetrics&) { ++done; };
    hooks.interrupted = [&] { return done == stop - 1; };
    const Ending first = run(folder, kGpt, validating, false, stop > 1 ? hooks : Hooks{});
    if (stop > 1) {
      EXPECT_TRUE(first.stopped);
      EXPECT_EQ(first.steps, stop);
    }
    const Ending second = run(folder, kGpt, validating, true);
    EXPECT_FALSE(second.stopped);
    EXPECT_EQ(second.steps, 12);
    EXPECT_EQ(second.final_loss.has_value(), stop > 1);  // else nothing was left to do
    EXPECT_EQ(second.weights_sha256, expected.weights_sha256) << "stopped after " << stop;
    const RunFacts facts = load_facts(folder);
    EXPECT_EQ(facts.sessions.size(), 2U);
    EXPECT_EQ(facts.sessions.back().outcome, Outcome::kFinished);
  }
}

/// Results come late, and none is lost; validations and checkpoints drain the pipeline.
TEST(Train, AsynchronousSchedulesKeepMetricsOfEveryStepInOrder) {
  const TempFolder folder;
  const std::vector<std::string> untied = {"model.tied=false", "train.clip_norm=0",
                                           "train.validate_every=5", "checkpoint.every=4",
                                           "checkpoint.keep=9"};
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    std::vector<std::string> overrides = untied;
    overrides.push_back(std::string("pipeline.schedule=") + schedule);
    const std::string dir = folder.path() + "/" + schedule;
    const Ending whole = run(dir, kGpt, overrides);
    EXPECT_EQ(whole.steps, 12);
    EXPECT_GE(whole.bubble_fraction, 0);
    EXPECT_LT(whole.predicted_bubble_fraction, 0.5);
    const std::string path = dir + "/metrics.jsonl";
    const Metrics metrics = parse_metrics(read_file(path, "test"), path);
    ASSERT_EQ(metrics.steps.size(), 12U);
    EXPECT_EQ(metrics.steps.back().step, 12);
    for (const StepMetrics& step : metrics.steps) EXPECT_GT(step.loss, 0);
    EXPECT_EQ(metrics.validations.size(), 3U);
    // What a drained pipeline leaves, a synchronous run takes over, and the other way round.
    overrides.back() = "pipeline.schedule=1f1b";
    overrides.emplace_back("train.steps=14");
    EXPECT_EQ(run(dir, kGpt, overrides, true).steps, 14);
    overrides.back() = "train.steps=16";
    overrides.push_back(std::string("pipeline.schedule=") + schedule);
    EXPECT_EQ(run(dir, kGpt, overrides, true).steps, 16);
  }
}

TEST(Train, ARunFromTheStartIsNotMixedWithAnother) {
  const TempFolder dir;
  run(dir / "run", kGpt);
  try {
    run(dir / "run", kGpt);
    FAIL() << "two runs in one folder";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("--resume"));
  }
}

TEST(Train, MetricsValidationsAndCheckpointsAreKept) {
  const TempFolder dir;
  const Ending ending =
      run(dir / "run", kGpt, {"train.validate_every=4", "checkpoint.every=5", "checkpoint.keep=2"});
  EXPECT_EQ(ending.steps, 12);
  const Metrics metrics = parse_metrics(read_file(dir / "run/metrics.jsonl", "test"), "metrics");
  ASSERT_EQ(metrics.steps.size(), 12U);
  EXPECT_LT(metrics.steps.back().loss, metrics.steps.front().loss);
  EXPECT_NEAR(metrics.steps[0].learning_rate, 0.01 / 3, 1e-12);
  EXPECT_NEAR(metrics.steps[2].learning_rate, 0.01, 1e-12);
  ASSERT_EQ(metrics.validations.size(), 3U);
  EXPECT_EQ(metrics.steps.back().peak_bytes.size(), 2U);
  EXPECT_EQ(open_checkpoint(dir / "run/checkpoints/step-00000012").step(), 12);
  EXPECT_EQ(open_checkpoint(dir / "run/checkpoints/step-00000010").step(), 10);
  EXPECT_FALSE(std::filesystem::exists(dir / "run/checkpoints/step-00000005"));
  EXPECT_TRUE(newest_whole(dir / "run/checkpoints/best").checkpoint);
  EXPECT_EQ(config::read(dir / "run/config.toml", {}, catalog::known()),
            config_of(kGpt, {"train.validate_every=4", "checkpoint.every=5", "checkpoint.keep=2"}));
}

TEST(Train, StopsEarlyWhereValidationDoesNotGetBetter) {
  const TempFolder dir;
  const Ending ending =
      run(dir / "run", kGpt, {"train.lr=0.0", "train.validate_every=2", "train.early_stop=2"});
  EXPECT_EQ(ending.steps, 6);  // the first is the best, two are not better
  EXPECT_FALSE(ending.stopped);
}

TEST(Train, AMaskedModelRunsForAnEpoch) {
  const TempFolder dir;
  const Ending ending = run(dir / "run", kBert);
  EXPECT_GT(ending.steps, 10);
  EXPECT_EQ(ending.weights_sha256, run(dir / "again", kBert, {"pipeline.ranks=1"}).weights_sha256);
}

/// Points in six dimensions with a class each, as arrays in files.
void write_points(const std::string& folder) {
  torch::manual_seed(2);
  const auto x = torch::randn({60, 6}, torch::kFloat64);
  const auto y = (x.select(1, 0) > 0.4).to(torch::kInt64) + (x.select(1, 1) > 0).to(torch::kInt64);
  const auto write = [&](const std::string& name, DType dtype, const torch::Tensor& tensor) {
    ArrayLayout layout;
    layout.dtype = dtype;
    layout.shape = tensor.sizes().vec();
    const std::string bytes(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    write_file(folder + "/" + name, npy_head(layout) + bytes, "test");
  };
  write("x.npy", DType::kF64, x);
  write("y.npy", DType::kI64, y);
}

TEST(Train, AModuleFromPythonIsCutTrainedAndSaved) {
  const TempFolder dir;
  write_points(dir.path());
  const std::string module = std::string(PIPEWRIGHT_TEST_DATA) + "/graph/models/mlp.pt";
  const std::string text = "[model]\nfile = \"" + module +
                           "\"\n[data]\nname = \"arrays\"\nbatch = 7\ninputs = [\"" +
                           (dir / "x.npy") + "\"]\ntargets = [\"" + (dir / "y.npy") +
                           "\"]\n[train]\nepochs = 12\nlr = 0.02\n[pipeline]\nmicro_batches = 3\n"
                           "threads_per_rank = 1\n[log]\nevery = 1\n";
  const Ending one = run(dir / "one", text.c_str());
  const Ending two = run(dir / "two", text.c_str(), {"pipeline.ranks=2"});
  EXPECT_EQ(one.weights_sha256, two.weights_sha256);
  const Metrics metrics = parse_metrics(read_file(dir / "one/metrics.jsonl", "test"), "metrics");
  EXPECT_LT(metrics.steps.back().loss, 0.5 * metrics.steps.front().loss);
  // What was saved is the trained module, not the one that was loaded.
  const auto before = torch::jit::load(module).parameters();
  const auto after = torch::jit::load(dir / "two/model.pt").parameters();
  ASSERT_EQ(before.size(), after.size());
  auto trained = after.begin();
  for (const auto& parameter : before) EXPECT_FALSE(parameter.equal(*trained++));
}

std::string error_of(const char* text, const std::vector<std::string>& overrides) {
  const TempFolder dir;
  try {
    run(dir / "run", text, overrides);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Train, RefusesWhatItCannotDo) {
  EXPECT_THAT(error_of(kGpt, {"model.vocab=10"}),
              HasSubstr("model.vocab = 10, but the data has 260 tokens; use at least that, or 0"));
  EXPECT_THAT(error_of(kGpt, {"data.path=/nowhere/text.txt"}), HasSubstr("/nowhere/text.txt"));
  EXPECT_THAT(error_of(kGpt, {"pipeline.ranks=9"}), HasSubstr("cannot split 5 layers into 9"));
  EXPECT_THAT(error_of(kGpt, {"model.seq=5000"}), HasSubstr("5000"));
}

}  // namespace
}  // namespace pipewright::app
