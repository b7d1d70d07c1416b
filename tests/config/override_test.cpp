#include "pipewright/config/override.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/sample.h"

namespace pipewright::config {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Override, ReplacesWhatTheFileSays) {
  EXPECT_EQ(read_sample("lr = 0.1", {"train.lr=0.5"}).train.lr, 0.5);
  EXPECT_EQ(read_sample("lr = \"wrong\"", {"train.lr=0.5"}).train.lr, 0.5);
}

TEST(Override, AddsSectionsThatTheFileDoesNotHave) {
  EXPECT_EQ(read_sample("", {"gradient_merge.steps=4"}).gradient_merge.steps, 4);
  EXPECT_EQ(read_sample("", {"seed=9"}).seed, 9);
  EXPECT_EQ(read_sample("", {"model.layers=9"}).model.parameters.integer("layers"), 9);
}

TEST(Override, TheLastOneCounts) { EXPECT_EQ(read_sample("", {"seed=2", "seed=3"}).seed, 3); }

TEST(Override, StringsNeedNoQuotes) {
  EXPECT_EQ(read_sample("", {"pipeline.schedule=gpipe"}).pipeline.schedule, "gpipe");
  EXPECT_EQ(read_sample("", {"pipeline.schedule=\"gpipe\""}).pipeline.schedule, "gpipe");
  EXPECT_EQ(read_sample("", {" pipeline.schedule = gpipe "}).pipeline.schedule, "gpipe");
  EXPECT_EQ(read_sample("", {"log.dir=/tmp/a=b,c#d"}).log.dir, "/tmp/a=b,c#d");
  EXPECT_EQ(read_sample("", {"log.dir=7"}).log.dir, "7");
  EXPECT_EQ(read_sample("", {"log.dir=true"}).log.dir, "true");
  EXPECT_EQ(read_sample("", {"log.dir=1,2"}).log.dir, "1,2");
}

TEST(Override, BytesHaveTheirUnit) {
  EXPECT_EQ(read_sample("", {"recompute.mode=budget", "recompute.budget=8GiB"}).recompute.budget,
            std::int64_t{8} << 30);
}

TEST(Override, ListsNeedNoBrackets) {
  const std::vector<std::string> manual = {"pipeline.ranks=2", "pipeline.partition=manual"};
  for (const char* sizes : {"pipeline.sizes=3,4", "pipeline.sizes=[3, 4]", "pipeline.sizes=3, 4"}) {
    EXPECT_THAT(read_sample("", {manual[0], manual[1], sizes}).pipeline.sizes, ElementsAre(3, 4));
  }
  EXPECT_THAT(read_sample("", {"pipeline.devices=cpu"}).pipeline.devices, ElementsAre("cpu"));
  EXPECT_THAT(read_sample("", {"pipeline.ranks=2", "pipeline.devices=cpu,cuda:1"}).pipeline.devices,
              ElementsAre("cpu", "cuda:1"));
  EXPECT_THAT(read_sample("", {"train.betas=0,0.5"}).train.betas, ElementsAre(0.0, 0.5));
  EXPECT_THAT(read_sample("", {"pipeline.devices=[]"}).pipeline.devices, IsEmpty());
}

TEST(Override, MayBeEmpty) { EXPECT_EQ(read_sample("", {"log.dir="}).log.dir, ""); }

TEST(Override, IsRefusedByItsOwnWords) {
  const auto refused = [](const std::string& override) { return problem_of("", {override}); };
  EXPECT_EQ(
      refused("pipeline.ranks=0"),
      "--set pipeline.ranks=0: pipeline.ranks: 0 is out of range; write a whole number from 1 "
      "to 1048576");
  EXPECT_EQ(refused("pipeline.ranks=two"),
            "--set pipeline.ranks=two: pipeline.ranks: \"two\" is a string; write a whole number "
            "from 1 to 1048576");
  EXPECT_EQ(refused("pipeline.rank=2"),
            "--set pipeline.rank=2: pipeline.rank: unknown key; did you mean ranks?");
  EXPECT_EQ(refused("pipelin.ranks=2"),
            "--set pipelin.ranks=2: pipelin: unknown section; did you mean pipeline?");
  EXPECT_EQ(refused("lr=2"), "--set lr=2: lr: unknown key; it belongs to [train]");
  EXPECT_EQ(refused("pipeline.schedule=gpip"),
            "--set pipeline.schedule=gpip: pipeline.schedule: there is no \"gpip\"; did you mean "
            "\"gpipe\"?");
  EXPECT_EQ(refused("train.epochs=2"),
            "--set train.epochs=2: train.epochs: 2 beside steps = 100; leave one of them out");
  EXPECT_EQ(refused("train.steps=5#3"),
            "--set train.steps=5#3: train.steps: \"5#3\" is a string; write a whole number from 0 "
            "to 1000000000000");
  EXPECT_EQ(refused("train.steps=5\nx=1"),
            "--set train.steps=5\nx=1: train.steps: \"5\\nx=1\" is a string; write a whole number "
            "from 0 to 1000000000000");
  EXPECT_EQ(refused("pipeline=3"),
            "--set pipeline=3: pipeline: 3 is a whole number; write [pipeline] once and its keys "
            "below");
  EXPECT_EQ(refused("pipeline={ranks=2}"),
            "--set pipeline={ranks=2}: pipeline: the value is a table; set its keys one by one");
  EXPECT_EQ(refused("pipeline.ranks"),
            "--set pipeline.ranks: syntax: no value; write --set section.key=value");
  EXPECT_EQ(refused("=3"), "--set =3: syntax: '' is no key; write --set section.key=value");
  EXPECT_EQ(refused("a..b=3"),
            "--set a..b=3: syntax: 'a..b' is no key; write --set section.key=value");
  EXPECT_EQ(refused("log.dir=\xFF"),
            "--set log.dir=\xFF: log.dir: the value is no UTF-8 text; write --set "
            "section.key=value");
}

TEST(Override, OfAModelMakesTheFilesParametersWrong) {
  const std::string text =
      "[model]\nname = \"gpt\"\nlayers = 3\n[data]\nname = \"text\"\nbatch = "
      "1\n[train]\nsteps = 1\n";
  EXPECT_THAT(problems_of(text, {"model.name=mlp"}),
              ElementsAre("run.toml:3:1: model.layers: unknown key; [model] has name, file, "
                          "weights, export_to, widths"));
}

TEST(Override, DoesNotHideThatASectionIsNoTable) {
  EXPECT_THAT(problems_of("pipeline = 3\n" + least_config(), {"pipeline.ranks=2"}),
              ElementsAre("run.toml:1:12: pipeline: 3 is a whole number; write [pipeline] once and "
                          "its keys below"));
}

}  // namespace
}  // namespace pipewright::config
