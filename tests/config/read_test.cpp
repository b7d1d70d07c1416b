#include "pipewright/config/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "pipewright/base/file.h"
#include "tests/config/sample.h"
#include "tests/refusal.h"

namespace pipewright::config {
namespace {

using testing::ElementsAre;

TEST(Reader, WhatIsNotSetHasItsDefault) {
  Config wanted;
  wanted.model.name = "gpt";
  wanted.model.parameters.set("layers", std::int64_t{4});
  wanted.model.parameters.set("vocab", std::int64_t{0});
  wanted.model.parameters.set("dropout", 0.0);
  wanted.model.parameters.set("tied", true);
  wanted.model.parameters.set("norm", std::string("before"));
  wanted.data.name = "text";
  wanted.data.batch = 32;
  wanted.data.parameters.set("seq", std::int64_t{64});
  wanted.train.steps = 100;
  EXPECT_EQ(read_sample(""), wanted);
}

TEST(Reader, ReadsEveryType) {
  const Config config = read_sample(R"(
lr = 3            # a whole number is a number too
betas = [0, 0.95]
check_finite = true
[pipeline]
ranks = 2
schedule = "interleaved-1f1b"
partition = "manual"
sizes = [1, 2, 3, 4]
devices = ["cpu", "cuda:12"]
[recompute]
mode = "budget"
budget = "1.5GiB"
)");
  EXPECT_EQ(config.train.lr, 3.0);
  EXPECT_THAT(config.train.betas, ElementsAre(0.0, 0.95));
  EXPECT_TRUE(config.train.check_finite);
  EXPECT_EQ(config.pipeline.schedule, "interleaved-1f1b");
  EXPECT_THAT(config.pipeline.sizes, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(config.pipeline.devices, ElementsAre("cpu", "cuda:12"));
  EXPECT_EQ(config.recompute.budget, 1610612736);
}

TEST(Reader, BytesMayBeAWholeNumber) {
  EXPECT_EQ(read_sample("[recompute]\nmode = \"budget\"\nbudget = 1_000\n").recompute.budget, 1000);
}

TEST(Reader, DottedKeysAndInlineTablesAreSectionsToo) {
  const Config config = read_text(
      "model = {name = \"gpt\", layers = 2}\n"
      "data.name = \"text\"\n"
      "data.batch = 4\n"
      "train.epochs = 3\n"
      "seed = 7\n",
      "run.toml", {}, sample_known());
  EXPECT_EQ(config.model.parameters.integer("layers"), 2);
  EXPECT_EQ(config.train.epochs, 3);
  EXPECT_EQ(config.seed, 7);
}

TEST(Reader, AutoIsTheWordForMeasuring) {
  EXPECT_EQ(read_sample("[auto_micro_batch]\nnum = \"auto\"\n").auto_micro_batch.num, 0);
}

TEST(Reader, ParametersHaveTheirDeclaredTypes) {
  const Config config = read_text(
      "[model]\ndropout = 0\nlayers = 2\ntied = false\nname = \"gpt\"\n"
      "[data]\nname = \"arrays\"\nbatch = 1\ncache = \"1KiB\"\n"
      "[train]\nsteps = 1\n",
      "run.toml", {}, sample_known());
  EXPECT_EQ(config.model.parameters.number("dropout"), 0.0);
  EXPECT_EQ(config.model.parameters.all().at("dropout"), Value(0.0));
  EXPECT_EQ(config.model.parameters.integer("layers"), 2);
  EXPECT_FALSE(config.model.parameters.flag("tied"));
  EXPECT_EQ(config.model.parameters.text("norm"), "before");
  EXPECT_EQ(config.data.parameters.integer("cache"), 1024);
}

TEST(Reader, WithoutKnownNamesAllAreTakenAsTheyAreWritten) {
  const Config config = read_text(
      "[model]\nname = \"own\"\ndepth = 3\nrate = 0.5\nwide = true\nkind = \"a\"\n"
      "sizes = [1, 2]\nshares = [1, 0.5]\nnames = [\"x\"]\nnone = []\n"
      "[data]\nname = \"mine\"\nbatch = 1\n"
      "[train]\nsteps = 1\nloss = \"special\"\n"
      "[pipeline]\nschedule = \"new\"\nchunks = 9\n",
      "run.toml", {}, {});
  const Values& values = config.model.parameters;
  EXPECT_EQ(values.integer("depth"), 3);
  EXPECT_EQ(values.number("depth"), 3.0);
  EXPECT_EQ(values.number("rate"), 0.5);
  EXPECT_TRUE(values.flag("wide"));
  EXPECT_EQ(values.text("kind"), "a");
  EXPECT_THAT(values.integers("sizes"), ElementsAre(1, 2));
  EXPECT_THAT(values.numbers("sizes"), ElementsAre(1.0, 2.0));
  EXPECT_THAT(values.numbers("shares"), ElementsAre(1.0, 0.5));
  EXPECT_THAT(values.texts("names"), ElementsAre("x"));
  EXPECT_TRUE(values.integers("none").empty());
  EXPECT_EQ(config.pipeline.schedule, "new");
}

TEST(Reader, AParameterThatNobodyDeclaredIsOurMistake) {
  const Config config = read_sample("");
  EXPECT_THROW(config.model.parameters.integer("width"), InternalError);
  EXPECT_THROW(config.model.parameters.text("layers"), InternalError);
}

TEST(Reader, ReadsAFile) {
  const std::string path = std::filesystem::path(testing::TempDir()) /
                           ("pipewright_config_" + std::to_string(getpid()) + ".toml");
  write_file(path, least_config(), "test");
  EXPECT_EQ(read(path, {}, sample_known()), read_sample(""));
  write_file(path, "x", "test");
  EXPECT_THAT(refusal([&] { read(path, {}, sample_known()); }),
              testing::StartsWith("[config] " + path + " has a problem:\n" + path + ":1:"));
  std::filesystem::remove(path);
  EXPECT_EQ(refusal([&] { read(path, {}, sample_known()); }),
            "[config] cannot read '" + path + "': No such file or directory; check the path");
}

/// What only the model shows is told with its place too: of the key, of its section where it is not
/// set, of the override.
TEST(Reader, RemembersWhereKeysStand) {
  Places places;
  const auto located = [&](const char* key) {
    return places.located(KeyError(key, "no; yes")).problems().at(0);
  };
  read_text(least_config() + "[pipeline]\nranks = 2\n", "run.toml", {"seed=3"}, sample_known(),
            &places);
  EXPECT_EQ(located("pipeline.ranks"), "run.toml:9:9: pipeline.ranks: no; yes");
  EXPECT_EQ(located("pipeline.sizes"), "run.toml:8:2: pipeline.sizes: no; yes");
  EXPECT_EQ(located("recompute.budget"), "run.toml:1:1: recompute.budget: no; yes");
  EXPECT_EQ(located("seed"), "--set seed=3: seed: no; yes");
  EXPECT_EQ(std::string(KeyError("a.b", "no; yes").what()), "[config] a.b: no; yes");
}

TEST(Reader, ARunHasAFolderByTheNameOfItsConfig) {
  Config config;
  EXPECT_EQ(run_folder(config, "configs/small.toml"), "runs/small");
  config.log.dir = "elsewhere";
  EXPECT_EQ(run_folder(config, "configs/small.toml"), "elsewhere");
}

}  // namespace
}  // namespace pipewright::config
