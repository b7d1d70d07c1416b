// Runs with clicks, and on lanes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include "pipewright/app/run.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/config/read.h"
#include "pipewright/input/npy.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright::app {
namespace {

using testing::HasSubstr;
using testing_checkpoint::TempFolder;

constexpr const char* kClicks = R"(
[model]
name = "deepfm"
width = 32
[data]
name = "clicks"
batch = 256
numeric = 3
fields = 7
values = 8
rows = 20000
validation_rows = 1000
[train]
steps = 150
lr = 0.01
optimizer = "adam"
validate_every = 50
[pipeline]
threads_per_rank = 1
[log]
every = 10
)";

config::Config config_of(const char* text, const std::vector<std::string>& overrides) {
  return config::read_text(text, "test.toml", overrides, catalog::known());
}

Metrics metrics_of(const std::string& dir) {
  return parse_metrics(read_file(dir + "/metrics.jsonl", "test"), "metrics.jsonl");
}

TEST(TrainClicks, TellsTheAreaUnderTheCurve) {
  const TempFolder dir;
  std::vector<std::string> notes;
  Hooks hooks;
  std::optional<double> last;
  hooks.note = [&](const std::string& line) { notes.push_back(line); };
  hooks.step = [&](const StepMetrics& metrics) { last = metrics.auc; };
  train(config_of(kClicks, {"pipeline.ranks=2", "pipeline.micro_batches=2"}), dir / "run", false,
        hooks);
  const Metrics metrics = metrics_of(dir / "run");
  ASSERT_TRUE(last);
  EXPECT_EQ(metrics.steps.back().auc, last);
  EXPECT_GT(*last, 0.75);
  EXPECT_LT(*metrics.steps.front().auc, 0.7);
  EXPECT_GT(metrics.validations.back().values.at("auc"), 0.78);
  EXPECT_THAT(notes, testing::Contains(HasSubstr("validation loss")));
  EXPECT_THAT(notes, testing::Contains(HasSubstr(", auc 0.")));
}

TEST(TrainClicks, LanesEndWithTheSameWeights) {
  const TempFolder dir;
  const auto weights = [&](const std::string& name, const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {"train.steps=6", "train.validate_every=0"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return *train(config_of(kClicks, all), dir / name, false, {}).weights_sha256;
  };
  const std::string one = weights("one", {"pipeline.micro_batches=4"});
  EXPECT_EQ(weights("a", {"auto_micro_batch.num=4", "auto_micro_batch.lanes=1"}), one);
  EXPECT_EQ(weights("b", {"auto_micro_batch.num=4", "auto_micro_batch.lanes=2"}), one);
  EXPECT_EQ(weights("c", {"auto_micro_batch.num=4", "auto_micro_batch.lanes=3"}), one);
  // Four batches of 64 are one of 256.
  EXPECT_EQ(weights("d", {"auto_micro_batch.num=4", "auto_micro_batch.lanes=2",
                          "auto_micro_batch.batch=micro", "data.batch=64"}),
            one);
}

TEST(TrainClicks, MeasuresTheNumberOfMicroBatches) {
  const TempFolder dir;
  std::vector<std::string> notes;
  Hooks hooks;
  hooks.note = [&](const std::string& line) { notes.push_back(line); };
  const std::vector<std::string> overrides = {"train.steps=2", "train.validate_every=0",
                                              "auto_micro_batch.num=auto",
                                              "auto_micro_batch.lanes=2"};
  EXPECT_EQ(train(config_of(kClicks, overrides), dir / "run", false, hooks).steps, 2);
  EXPECT_THAT(notes, testing::Contains(HasSubstr("taken: ")));
  std::vector<std::string> micro = overrides;
  micro.emplace_back("auto_micro_batch.batch=micro");
  EXPECT_THAT(refusal([&] { train(config_of(kClicks, micro), dir / "other", false, {}); }),
              HasSubstr("write a number"));
}

TEST(TrainClicks, SparseGradientsWithAdagrad) {
  const TempFolder dir;
  const Ending ending =
      train(config_of(kClicks, {"model.sparse=true", "train.optimizer=adagrad", "train.lr=0.05",
                                "auto_micro_batch.num=4", "auto_micro_batch.lanes=2"}),
            dir / "run", false, {});
  EXPECT_LT(*ending.final_loss, 0.6);
  EXPECT_GT(metrics_of(dir / "run").validations.back().values.at("auc"), 0.75);
}

constexpr const char* kScript = R"(
[model]
file = "{}"
[data]
name = "arrays"
batch = 8
inputs = ["{}"]
targets = ["{}"]
[train]
steps = 3
lr = 0.1
optimizer = "sgd"
loss = "mean_squared_error"
[pipeline]
threads_per_rank = 1
)";

TEST(TrainOnLanes, ATorchScriptFile) {
  const TempFolder dir;
  torch::jit::Module module("Net");
  torch::manual_seed(2);
  module.register_parameter("weight", torch::randn({3, 2}, torch::kFloat), false);
  module.define("def forward(self, x):\n    return torch.tanh(torch.mm(x, self.weight))\n");
  module.save(dir / "net.pt");
  const auto write = [&](const std::string& name, const torch::Tensor& tensor) {
    ArrayLayout layout;
    layout.dtype = DType::kF32;
    layout.shape = {tensor.sizes().begin(), tensor.sizes().end()};
    const std::string bytes(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    write_file(dir / name, npy_head(layout) + bytes, "test");
  };
  write("x.npy", torch::randn({24, 3}));
  write("y.npy", torch::randn({24, 2}));
  std::string text = kScript;
  for (const std::string& path : {dir / "net.pt", dir / "x.npy", dir / "y.npy"})
    text.replace(text.find("{}"), 2, path);
  const auto run = [&](const std::string& name, const std::vector<std::string>& overrides) {
    return *train(config_of(text.c_str(), overrides), dir / name, false, {}).weights_sha256;
  };
  const std::string lanes = run("lanes", {"auto_micro_batch.num=4", "auto_micro_batch.lanes=2"});
  EXPECT_EQ(lanes, run("turns", {"pipeline.micro_batches=4"}));
}

}  // namespace
}  // namespace pipewright::app
