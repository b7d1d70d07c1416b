// The program as somebody at a shell uses it: what it prints, writes and answers to mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "pipewright/base/file.h"
#include "pipewright/cost/profile.h"
#include "tests/cli/shell.h"

namespace pipewright {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing_cli::Result;

/// A folder of this process's own, gone when it ends.
class Scratch {
 public:
  Scratch() { std::filesystem::create_directories(folder_); }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch(Scratch&&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch& operator=(Scratch&&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("pipewright_cli_" + std::to_string(getpid()));
};

const std::filesystem::path& scratch() {
  static const Scratch kScratch;
  return kScratch.folder();
}

Result pipewright(const std::string& arguments) {
  return testing_cli::run_program(scratch().string(), arguments);
}

json json_of(const std::string& arguments) {
  const Result result = pipewright(arguments + " --json");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return json::parse(result.out);
}

TEST(Simulate, JsonHasTheKeysOfTheContract) {
  const json out =
      json_of("simulate --schedule 1f1b --ranks 4 --micro-batches 8 --activation-bytes 1KiB");
  EXPECT_EQ(out.at("schedule"), "1f1b");
  EXPECT_EQ(out.at("ranks"), 4);
  EXPECT_EQ(out.at("chunks"), 1);
  EXPECT_EQ(out.at("micro_batches"), 8);
  EXPECT_EQ(out.at("instructions"), 64);
  EXPECT_EQ(out.at("step_time"), 33);
  EXPECT_NEAR(out.at("bubble_fraction").get<double>(), 3.0 / 11, 1e-12);
  EXPECT_THAT(out.at("rank_span"), ElementsAre(33, 30, 27, 24));
  EXPECT_THAT(out.at("peak_in_flight"), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(out.at("peak_bytes"), ElementsAre(4096, 3072, 2048, 1024));
}

TEST(Simulate, AllIsOneObjectWithEverySchedule) {
  const json out = json_of("simulate --schedule all --ranks 4 --micro-batches 8");
  std::vector<std::string> names;
  for (const auto& schedule : out.at("schedules")) names.push_back(schedule.at("schedule"));
  EXPECT_THAT(names, ElementsAre("gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1",
                                 "zb-h2", "zb-v", "pipedream", "pipedream-2bw", "eager-pipedream",
                                 "eager-pipedream-2bw", "forward-only"));
}

TEST(Simulate, ATimeIsThatOfARanksWholeShare) {
  EXPECT_EQ(
      json_of(
          "simulate --schedule interleaved-1f1b --chunks 4 --ranks 4 --micro-batches 8 --forward 4 "
          "--backward 8")
          .at("step_time"),
      8 * 12 + 3 * 12 / 4);
  EXPECT_EQ(
      json_of(
          "simulate --schedule zb-h1 --ranks 3 --micro-batches 6 --forward 2 --backward-input 3 "
          "--backward-weight 1")
          .at("step_time"),
      6 * 6 + 2 * (2 + 3 - 1));
  EXPECT_EQ(json_of("simulate --schedule 1f1b --ranks 2 --micro-batches 2 --backward-input 3 "
                    "--backward-weight 1")
                .at("step_time"),
            3 * 5);
}

TEST(Simulate, RecomputeTradesTimeForBytes) {
  const std::string common =
      "simulate --schedule gpipe --ranks 2 --micro-batches 4 --activation-bytes 100 "
      "--boundary-bytes 10";
  const json plain = json_of(common);
  const json recomputed = json_of(common + " --recompute");
  EXPECT_THAT(plain.at("peak_bytes"), ElementsAre(400, 400));
  EXPECT_THAT(recomputed.at("peak_bytes"), ElementsAre(130, 130));
  EXPECT_GT(recomputed.at("step_time"), plain.at("step_time"));
}

TEST(Simulate, WritesEveryKindOfFile) {
  const auto& folder = scratch();
  const Result result =
      pipewright("simulate --schedule zb-v --ranks 2 --micro-batches 4 --html " +
                 (folder / "t.html").string() + " --chrome " + (folder / "t.json").string() +
                 " --svg " + (folder / "t.svg").string() + " --csv " + (folder / "t.csv").string());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(read_file(folder / "t.html", "test"), HasSubstr("<!doctype html>"));
  EXPECT_TRUE(json::parse(read_file(folder / "t.json", "test")).contains("traceEvents"));
  EXPECT_THAT(read_file(folder / "t.svg", "test"), HasSubstr("<svg"));
  EXPECT_THAT(read_file(folder / "t.csv", "test"), StartsWith("0F0,0F1,0F2,3F0,3I0,3W0"));
}

TEST(Simulate, ReadsBackTheCsvItWrote) {
  const auto& folder = scratch();
  for (const std::string lowered : {"", " --lowered"}) {
    const std::string path = folder / "back.csv";
    json first =
        json_of("simulate --schedule zb-v --ranks 3 --micro-batches 7 --csv " + path + lowered);
    json second = json_of("simulate --from-csv " + path);
    first.erase("schedule");
    second.erase("schedule");
    EXPECT_EQ(first, second);
  }
}

TEST(Simulate, TellsWhatItLeftOutOfTorchsCsv) {
  const std::string path = scratch() / "torch.csv";
  write_file(path, "0UNSHARD,0F0,0B0,0RESHARD\n", "test");
  const Result result = pipewright("simulate --json --from-csv " + path);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("1 RESHARD, 1 UNSHARD"));
  EXPECT_EQ(json::parse(result.out).at("instructions"), 2);
}

TEST(Simulate, DrawsBackwardsInAnyOrderAndSaysSo) {
  const std::string path = scratch() / "looped.csv";
  write_file(path, "0F0,0F1,0B1,0B0\n", "test");
  const Result result = pipewright("simulate --json --from-csv " + path);
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("not in increasing order"));
}

TEST(Simulate, TakesAProfilesLayers) {
  Profile profile;
  for (int i = 0; i < 4; ++i)
    profile.layers.push_back({.name = "l", .forward_seconds = 1, .backward_seconds = 2});
  const std::string path = scratch() / "profile.json";
  write_file(path, to_json(profile), "test");
  EXPECT_EQ(json_of("simulate --schedule 1f1b --ranks 2 --micro-batches 4 --profile " + path)
                .at("step_time"),
            5 * 6);
  const Result result =
      pipewright("simulate --schedule 1f1b --ranks 8 --micro-batches 4 --profile " + path);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot split 4 layers into 8 stages"));
}

TEST(Simulate, DrawsATimelineWithoutColourIntoAPipe) {
  const Result result = pipewright("simulate --schedule 1f1b --ranks 2 --micro-batches 2 --text");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 |F0"), testing::Not(HasSubstr("\x1b["))));
}

struct Mistake {
  const char* arguments;
  const char* words;
};

class UserMistake : public testing::TestWithParam<Mistake> {};

TEST_P(UserMistake, GetsOneClearLineAndExit2) {
  const Result result = pipewright(GetParam().arguments);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(StartsWith("pipewright: "), HasSubstr(GetParam().words)));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

const Mistake kMistakes[] = {
    {"", "A subcommand is required"},
    {"trian", "'trian' is no command; there are simulate, partition"},
    {"--bogus", "'--bogus' is no option"},
    {"simulate", "--schedule is required"},
    {"simulate --schedule 1f1b --ranks 2", "--micro-batches is required"},
    {"simulate --schedule 1f1b --ranks 0 --micro-batches 4", "[--ranks] '0' is not a whole number"},
    {"simulate --schedule 1f1b --ranks -3 --micro-batches 4", "[--ranks] '-3' is not"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 0", "[--micro-batches] '0' is not"},
    {"simulate --schedule 1f1b --ranks 2.5 --micro-batches 4", "[--ranks] '2.5' is not"},
    {"simulate --schedule 2f2b --ranks 2 --micro-batches 4",
     "'2f2b' is no schedule; there are gpipe"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --chunks 2",
     "1f1b runs exactly 1 chunk a rank"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --forward -1", "[--forward] '-1'"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --forward nan", "[--forward] 'nan'"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --forward 1e300",
     "'1e300' is more than 1e+100"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --activation-bytes 3XB",
     "[--activation-bytes] '3XB'"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --backward-input 1", "give both"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --backward 1 --backward-input 1 "
     "--backward-weight 1",
     "exclude each other"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --json --text", "exclude each other"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --unknown 1", "--unknown"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --html /nowhere/t.html",
     "cannot write '/nowhere/t.html'"},
    {"simulate --schedule all --ranks 2 --micro-batches 4 --csv x.csv", "exclude each other"},
    {"simulate --schedule 1f1b --ranks 1000000 --micro-batches 1000000", "are more than"},
    {"simulate --from-csv /nowhere/s.csv",
     "cannot read '/nowhere/s.csv': No such file or directory"},
    {"simulate --from-csv /", "is a folder"},
    {"simulate --from-csv " PIPEWRIGHT_TEST_DATA "/CMakeLists.txt", "[csv] row 1, cell 1"},
    {"simulate --from-csv x.csv --ranks 2", "exclude each other"},
    {"simulate --schedule 1f1b --ranks 2 --micro-batches 4 --profile /nowhere/p.json",
     "cannot read"},
    {"partition --stages 2", "--costs is required"},
    {"partition --costs 1,2,3 --stages 0", "[partition]"},
    {"partition --costs 1,2,3 --stages -1", "[partition]"},
    {"partition --costs 1,2,3 --stages 4",
     "cannot split 3 layers into 4 stages; use --stages 3 or fewer"},
    {"partition --costs 1,-2,3 --stages 2", "layer 1"},
    {"partition --costs '' --stages 2", "no layers"},
    {"partition --costs @/nowhere/costs --stages 2", "cannot read '/nowhere/costs'"},
    {"partition --costs 1,2,3 --stages 2 --objective speed", "'speed' is no objective"},
    {"partition --costs 1,2,3 --stages 2 --objective step-time", "needs --micro-batches"},
    {"partition --costs 1,2,3 --stages 2 --micro-batches 4", "add it"},
    {"partition --costs 1,2,3 --stages 3 --objective step-time --micro-batches 4 --schedule zb-v",
     "[partition]"},
    {"launch -- true", "-n is required"},
    {"launch -n 2", "no program to start; write it at the end: pipewright launch -n 2 -- program"},
    {"launch -n 2 --", "no program to start"},
    {"launch -n 2 -- ''", "no program to start"},
    {"launch -n 0 -- true", "[-n] "},
    {"launch -n -1 -- true", "[-n] "},
    {"launch -n two -- true", "[-n] "},
    {"launch -n 100000 -- true", "[-n] "},
    {"launch -n 2 --devices 0,0 -- true", "names device 0 twice; name each once"},
    {"launch -n 2 --devices 0,x -- true", "[--devices] "},
    {"launch -n 2 --devices '' -- true", "[--devices] "},
    {"launch -n 3 --devices 0,1 -- true",
     "[--devices] 2 devices are fewer than the 3 ranks of -n; name one a rank"},
    {"launch -n 1 --nnodes 0 --node-rank 0 --master a:1 -- true", "[--nnodes] "},
    {"launch -n 1 --nnodes 2 --node-rank 0 -- true", "[--nnodes] 2 nodes need --master HOST:PORT"},
    {"launch -n 1 --nnodes 2 --master a:1 -- true", "several nodes need --node-rank"},
    {"launch -n 1 --nnodes 2 --node-rank 2 --master a:1 -- true",
     "[--node-rank] 2 is not a number from 0 to 1"},
    {"launch -n 1 --node-rank 1 -- true", "[--node-rank] 1 is not a number from 0 to 0"},
    {"launch -n 1 --node-rank -1 -- true", "[--node-rank] "},
    {"launch -n 1 --master nowhere -- true", "[--master] 'nowhere' is not HOST:PORT"},
    {"launch -n 1 --master a:0 -- true", "[--master] "},
    {"launch -n 1 --master a:70000 -- true", "[--master] "},
    {"launch -n 1 --master ::1:29500 -- true", "[fd00::1]:29500"},
    {"launch -n 1 --log-dir '' -- true", "[--log-dir] '' is no folder"},
    {"launch -n 1 --max-restarts -1 -- true", "[--max-restarts] "},
    {"launch -n 1 --max-restarts many -- true", "[--max-restarts] "},
    {"launch -n 1 --deadline 0 -- true", "[--deadline] 0 is not a number of seconds from 0.1"},
    {"launch -n 1 --deadline soon -- true", "[--deadline] "},
    {"launch -n 1 --grace -1 -- true", "[--grace] "},
    {"launch -n 1 --grace inf -- true", "[--grace] "},
    {"launch -n 1 --bogus -- true", "--bogus"},
};

INSTANTIATE_TEST_SUITE_P(All, UserMistake, testing::ValuesIn(kMistakes));

TEST(Simulate, ShowsTheGridOfACsvThatIsNoSchedule) {
  const std::string path = scratch() / "wrong.csv";
  write_file(path, "0F0,0F1,0B0,0B1\n1F0,1F0,1B0,1F1,1B1\n", "test");
  const Result result = pipewright("simulate --json --from-csv " + path);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(StartsWith("pipewright: [validate] rank 1, step 1: 1F0 is a duplicate"),
                    HasSubstr("[1F0]")));
}

TEST(Partition, JsonHasTheKeysOfTheContract) {
  const json out = json_of("partition --costs 1,2,3,4,5,6 --stages 2");
  EXPECT_THAT(out.at("sizes"), ElementsAre(4, 2));
  EXPECT_EQ(out.at("bottleneck"), 11);
  EXPECT_EQ(out.at("exact"), true);
  const json timed = json_of(
      "partition --costs 1,2,3,4,5,6,7,8 --stages 4 --objective step-time --micro-batches 8 "
      "--schedule 1f1b");
  EXPECT_THAT(timed.at("sizes"), ElementsAre(4, 2, 1, 1));
  EXPECT_EQ(timed.at("exact"), true);
  EXPECT_TRUE(timed.contains("step_time"));
}

TEST(Partition, ReadsCostsFromAFile) {
  const std::string path = scratch() / "costs.txt";
  write_file(path, "1, 2\n3\n4 5,6\n", "test");
  EXPECT_THAT(json_of("partition --stages 2 --costs @" + path).at("sizes"), ElementsAre(4, 2));
  Profile profile;
  for (int i = 1; i <= 6; ++i) profile.layers.push_back({.name = "l", .forward_seconds = i * 1.0});
  write_file(path, to_json(profile), "test");
  EXPECT_THAT(json_of("partition --stages 2 --costs @" + path).at("sizes"), ElementsAre(4, 2));
}

TEST(Program, ExplainsItself) {
  for (const char* arguments : {"--help", "simulate --help", "partition --help"}) {
    const Result result = pipewright(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("OPTIONS")) << arguments;
  }
  const Result version = pipewright("--version");
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, StartsWith("pipewright "));
  EXPECT_THAT(version.out,
              AnyOf(HasSubstr("\ntransports: threads"), HasSubstr("\nbuilt without LibTorch")));
}

std::string chain_file() {
  const std::string path = scratch() / "chain.json";
  std::ofstream(path) << R"({"layers": [
    {"forward": 1, "backward": 2, "output_bytes": 4, "saved_bytes": 10, "backward_temp_bytes": 4},
    {"forward": 1, "backward": 2, "output_bytes": 4, "saved_bytes": 10, "backward_temp_bytes": 4}]})";
  return path;
}

TEST(Recompute, JsonHasTheKeysOfTheContract) {
  const json out = json_of("recompute --chain " + chain_file() + " --budget 27");
  EXPECT_EQ(out["feasible"], true);
  EXPECT_EQ(out["time"], 7);
  EXPECT_EQ(out["peak_bytes"], 22);
  EXPECT_EQ(out["least_budget_bytes"], 22);
  EXPECT_EQ(out["operations"][0], (json{{"op", "forward_keep"}, {"layer", 1}}));
  EXPECT_EQ(out["operations"].size(), 5U);
}

TEST(Recompute, ABudgetThatIsTooSmallIsAFailureThatSaysWhatWouldDo) {
  const Result text = pipewright("recompute --chain " + chain_file() + " --budget 21");
  EXPECT_EQ(text.status, 1);
  EXPECT_EQ(text.err,
            "pipewright: [recompute] a budget of 21 bytes is not enough; use 22 or more\n");
  const Result result = pipewright("recompute --json --chain " + chain_file() + " --budget 21");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(json::parse(result.out)["feasible"], false);
  EXPECT_EQ(json::parse(result.out)["least_budget_bytes"], 22);
  EXPECT_EQ(pipewright("recompute --chain /nowhere --budget 21").status, 2);
  EXPECT_EQ(pipewright("recompute --chain " + chain_file() + " --budget many").status, 2);
}

TEST(Recompute, TheTextListsRunsOfOperations) {
  const Result result = pipewright("recompute --chain " + chain_file() + " --budget 1KiB");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("time:         6 (6 when everything is saved)"),
                    HasSubstr("forward_save     1-2"), HasSubstr("backward         2-1")));
}

std::string plan_profile() {
  const std::string path = scratch() / "plan_profile.json";
  std::string layers;
  for (int i = 0; i < 6; ++i) {
    layers += std::string(i == 0 ? "" : ",") +
              R"({"forward_seconds": 1, "output_bytes": 8, "saved_bytes": 80,
                  "backward_temp_bytes": 16, "parameter_bytes": 10, "gradient_bytes": 10})";
  }
  write_file(
      path,
      R"({"format": "pipewright-profile", "version": 1, "model": "m", "layers": [)" + layers + "]}",
      "test");
  return path;
}

TEST(PlanCommand, JsonHasTheKeysOfTheContract) {
  const json out = json_of("plan --profile " + plan_profile() +
                           " --ranks 2 --global-batch 8 --memory 900 --link-bandwidth 1KB");
  ASSERT_FALSE(out.at("plans").empty());
  for (const char* key : {"schedule", "ranks", "chunks", "micro_batches", "micro_batch_size",
                          "sizes", "recompute", "step_seconds", "bubble_fraction", "peak_bytes"})
    EXPECT_TRUE(out["plans"][0].contains(key)) << key;
  EXPECT_LE(out["plans"].size(), 10U);
  double last = 0;
  for (const json& plan : out["plans"]) {
    EXPECT_GE(plan["step_seconds"], last * (1 - 1e-9));
    last = plan["step_seconds"];
    for (const json& bytes : plan["peak_bytes"]) EXPECT_LE(bytes, 900);
  }
  ASSERT_FALSE(out.at("rejected").empty());
  EXPECT_TRUE(out["rejected"][0].contains("reason"));
}

TEST(PlanCommand, WritesThePlanAndSaysWhyNot) {
  const std::string common = "plan --profile " + plan_profile() + " --ranks 2 --global-batch 8";
  const std::string file = scratch() / "plan.json";
  const Result result = pipewright(common + " --memory 700 --output " + file);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("layers by stage"), HasSubstr("that fit:"),
                                HasSubstr("Rejected:"), HasSubstr("would need at least")));
  EXPECT_THAT(result.err, HasSubstr("one profile, of micro-batches of 1"));
  EXPECT_EQ(json::parse(read_file(file, "test"))["format"], "pipewright-plan");
  const Result none = pipewright(common + " --memory 50");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("nothing fits; give more --memory or --ranks"));
  EXPECT_EQ(pipewright("plan --global-batch 8").status, 2);
  EXPECT_EQ(pipewright(common + " --memory 0").status, 2);
  EXPECT_EQ(pipewright(common + " --schedule 2f2b").status, 2);
  EXPECT_EQ(pipewright("plan --global-batch 0 --profile " + plan_profile()).status, 2);
}

}  // namespace
}  // namespace pipewright
