// Asynchronous schedules in `pipewright simulate` and `pipewright plan`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipewright/base/file.h"
#include "tests/cli/shell.h"

namespace pipewright {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_cli::Result;

class AsynchronousCommand : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result pipewright(const std::string& arguments) const {
    return testing_cli::run_program(folder_.string(), arguments);
  }
  json json_of(const std::string& arguments) const {
    const Result result = pipewright(arguments + " --json");
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out);
  }
  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }

  /// A model of six equal layers with large weights.
  std::string profile() const {
    json layers = json::array();
    for (int i = 0; i < 6; ++i) {
      layers.push_back({{"name", "layer" + std::to_string(i)},
                        {"forward_seconds", 1},
                        {"backward_seconds", 2},
                        {"output_bytes", 8},
                        {"saved_bytes", 16},
                        {"parameter_bytes", 1000},
                        {"gradient_bytes", 1000}});
    }
    const json root = {{"format", "pipewright-profile"},
                       {"version", 1},
                       {"model", "even"},
                       {"micro_batch_size", 1},
                       {"layers", layers}};
    write_file(path_of("profile.json"), root.dump(), "test");
    return path_of("profile.json");
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("pipewright_async_" + std::to_string(getpid()));
};

TEST_F(AsynchronousCommand, JsonHasTheSteadyStateAndWhatOnlyTheyHave) {
  const json out = json_of(
      "simulate --schedule pipedream --ranks 4 --micro-batches 1 --activation-bytes 1KiB "
      "--weight-bytes 1MiB");
  EXPECT_EQ(out.at("schedule"), "pipedream");
  EXPECT_EQ(out.at("micro_batches"), 1);
  EXPECT_EQ(out.at("mini_batches"), 24);
  EXPECT_EQ(out.at("updates_every"), 1);
  EXPECT_EQ(out.at("instructions"), 4 * 24 * 2);
  EXPECT_EQ(out.at("steady"), true);
  EXPECT_EQ(out.at("step_time"), 3);
  EXPECT_EQ(out.at("bubble_fraction"), 0);
  EXPECT_THAT(out.at("rank_span"), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(out.at("peak_in_flight"), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(out.at("versions"), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(out.at("delay"), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(out.at("version_bytes"), ElementsAre(3 << 20, 2 << 20, 1 << 20, 0));
  EXPECT_THAT(out.at("peak_bytes"),
              ElementsAre((3 << 20) + 4096, (2 << 20) + 3072, (1 << 20) + 2048, 1024));
}

TEST_F(AsynchronousCommand, TakesMiniBatchesAndVerticalSync) {
  const json sync = json_of(
      "simulate --schedule pipedream --ranks 3 --micro-batches 1 --mini-batches 9 --vertical-sync");
  EXPECT_EQ(sync.at("mini_batches"), 9);
  EXPECT_THAT(sync.at("versions"), ElementsAre(3, 3, 3));
  EXPECT_THAT(sync.at("delay"), ElementsAre(2, 2, 2));
  const json merged = json_of("simulate --schedule pipedream-2bw --ranks 4 --micro-batches 2");
  EXPECT_EQ(merged.at("updates_every"), 2);
  EXPECT_EQ(merged.at("step_time"), 6);
  EXPECT_THAT(merged.at("versions"), Each(2));
  const json one = json_of(
      "simulate --schedule pipedream --ranks 3 --micro-batches 2 "
      "--mini-batches 1");
  EXPECT_EQ(one.at("steady"), false);
  EXPECT_EQ(one.at("step_time"), (2 + 2) * 3);
}

TEST_F(AsynchronousCommand, TextSaysThatUpdatesAreDelayed) {
  const Result result = pipewright(
      "simulate --schedule pipedream --ranks 3 --micro-batches 1 --mini-batches 4 "
      "--weight-bytes 1MiB");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("1 micro-batch a mini-batch, 4 mini-batches"),
                    HasSubstr("a mini-batch in the steady state: 3, bubble 0.0%"),
                    HasSubstr("updates are delayed: a gradient changes weights that have been "
                              "updated up to 2 times\n  since it was made (by rank: 2 1 0)"),
                    HasSubstr("versions held by rank: 3 2 1"),
                    HasSubstr("of those, versions beside the newest: 2 MiB, 1 MiB, 0 B"),
                    HasSubstr("F0@0")));
  EXPECT_THAT(
      pipewright("simulate --schedule pipedream --ranks 3 --micro-batches 1 --mini-batches 1").out,
      HasSubstr("too few mini-batches for a steady state"));
  EXPECT_THAT(pipewright("simulate --schedule pipedream --ranks 1 --micro-batches 2").out,
              HasSubstr("pipedream: no update is delayed; versions held by rank: 1"));
}

TEST_F(AsynchronousCommand, TheTableOfAllComparesThem) {
  const Result result = pipewright("simulate --schedule all --ranks 4 --micro-batches 2");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("versions  delay"),
                    HasSubstr("pipedream                1           6     0.0%         6"),
                    HasSubstr("their gradients are of older weights than they change"),
                    HasSubstr("pipedream: updates are delayed"),
                    HasSubstr("pipedream-2bw: updates are delayed"),
                    HasSubstr("an update every 2 mini-batches")));
  const Result several = pipewright(
      "simulate --schedule all --ranks 2 --micro-batches 2 --mini-batches 5 --vertical-sync");
  EXPECT_EQ(several.status, 0) << several.err;
}

TEST_F(AsynchronousCommand, SaysThatCsvHasNoVersions) {
  const Result result = pipewright(
      "simulate --schedule pipedream --ranks 2 --micro-batches 1 --mini-batches 2 --csv " +
      path_of("p.csv"));
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("PyTorch's CSV has no versions of the weights"));
  EXPECT_THAT(read_file(path_of("p.csv"), "test"), Not(HasSubstr("@")));
}

TEST_F(AsynchronousCommand, MistakesGetAClearLine) {
  const auto error = [&](const std::string& arguments) {
    const Result result = pipewright(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    return result.err;
  };
  const std::string sizes = " --ranks 2 --micro-batches 2";
  EXPECT_THAT(error("simulate --schedule 1f1b --mini-batches 2" + sizes),
              HasSubstr("1f1b ends with every mini-batch"));
  EXPECT_THAT(error("simulate --schedule 1f1b --vertical-sync" + sizes),
              HasSubstr("1f1b ends with every mini-batch"));
  EXPECT_THAT(error("simulate --schedule pipedream-2bw --vertical-sync" + sizes),
              HasSubstr("leave out vertical sync"));
  EXPECT_THAT(error("simulate --schedule pipedream --mini-batches 0" + sizes),
              HasSubstr("--mini-batches"));
  EXPECT_THAT(error("simulate --schedule pipedream --weight-bytes x" + sizes),
              HasSubstr("--weight-bytes"));
  EXPECT_THAT(error("simulate --schedule pipedream --chunks 2" + sizes),
              HasSubstr("runs exactly 1 chunk"));
  EXPECT_THAT(error("simulate --from-csv x.csv --mini-batches 2"), HasSubstr("exclude each other"));
  EXPECT_THAT(error("partition --costs 1,2,3 --stages 2 --objective step-time --micro-batches 4 "
                    "--schedule pipedream"),
              HasSubstr("pipedream never empties its pipeline"));
}

TEST_F(AsynchronousCommand, PlansHaveThemOnlyWhenAsked) {
  const std::string common = "plan --profile " + profile() + " --ranks 3 --global-batch 6 --top 99";
  const json plain = json_of(common);
  EXPECT_FALSE(plain["plans"].empty());
  for (const json& plan : plain["plans"]) EXPECT_EQ(plan["delay"], 0) << plan;
  const json asked = json_of(common + " --asynchronous");
  const json& best = asked["plans"][0];
  EXPECT_THAT(best["schedule"], testing::StartsWith("pipedream"));
  EXPECT_GT(best["delay"], 0);
  EXPECT_EQ(best["step_seconds"], 6 * 2 * 3);  // six rows through two layers
  EXPECT_EQ(best["bubble_fraction"], 0);
  const Result named = pipewright(common + " --schedule pipedream-2bw");
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_THAT(named.out,
              AllOf(HasSubstr("Plans with a delay go on from one mini-batch to the next"),
                    HasSubstr("3 ranks need at least 3 micro-batches between updates")));
  EXPECT_THAT(pipewright(common).out, Not(HasSubstr("delay")));
}

}  // namespace
}  // namespace pipewright
