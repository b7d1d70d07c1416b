// The configs of published results: all of them can be read, and a small form of each trains.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "pipewright/app/run.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/config/read.h"
#include "tests/checkpoint/sample.h"

namespace pipewright::app {
namespace {

using testing_checkpoint::TempFolder;

std::filesystem::path folder() {
  return std::filesystem::path(PIPEWRIGHT_TEST_DATA).parent_path() / "examples" / "configs";
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().filename().string());
  return names;
}

using Overrides = std::vector<std::string>;

/// What makes a config of each model small.
const std::map<std::string, Overrides>& smaller() {
  const Overrides transformer = {"model.layers=2", "model.dim=16", "model.heads=2", "model.seq=16",
                                 "data.tokens=2000"};
  static const std::map<std::string, Overrides> kAll = {
      {"gpt", transformer},
      {"bert", transformer},
      {"encoder_decoder",
       {"model.layers=2", "model.dim=16", "model.heads=2", "model.head_width=4", "model.hidden=16",
        "model.seq=16", "model.source_vocab=0", "model.target_vocab=0", "data.pairs=20"}},
      {"resnet", {"model.blocks=[1, 1]", "model.width=4", "data.size=32", "data.images=20"}},
      {"amoebanet", {"model.layers=3", "model.filters=16", "data.size=32", "data.images=20"}},
      {"unet",
       {"model.depth=2", "model.convolutions=1", "model.width=4", "data.size=16",
        "data.images=20"}},
      {"deepfm", {"model.width=8", "data.rows=100", "data.validation_rows=10"}}};
  return kAll;
}

TEST(ExampleConfigs, CanBeRead) {
  const auto names = files();
  EXPECT_GE(names.size(), 7U);
  for (const std::string& name : names)
    EXPECT_NO_THROW(config::read((folder() / name).string(), {}, catalog::known())) << name;
}

TEST(ExampleConfigs, ASmallFormOfEachTrains) {
  const TempFolder dir;
  for (const std::string& name : files()) {
    const std::string path = (folder() / name).string();
    const config::Config whole = config::read(path, {}, catalog::known());
    ASSERT_TRUE(smaller().contains(whole.model.name)) << name;
    Overrides overrides = smaller().at(whole.model.name);
    for (const char* one :
         {"train.steps=2", "train.warmup=0", "train.schedule=constant", "data.batch=4"}) {
      overrides.emplace_back(one);
    }
    if (whole.auto_micro_batch.num == 1) overrides.emplace_back("pipeline.micro_batches=2");
    if (whole.pipeline.ranks > 1) overrides.emplace_back("pipeline.ranks=2");
    if (whole.train.schedule == "step") overrides.emplace_back("train.schedule_every=0");
    const Ending ending =
        train(config::read(path, overrides, catalog::known()), dir / name, false, {});
    EXPECT_EQ(ending.steps, 2) << name;
    ASSERT_TRUE(ending.final_loss) << name;
    EXPECT_GT(*ending.final_loss, 0) << name;
  }
}

}  // namespace
}  // namespace pipewright::app
