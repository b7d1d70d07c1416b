// `pipewright train` and `models` as somebody at a shell uses them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "pipewright/base/file.h"
#include "pipewright/run/folder.h"
#include "tests/checkpoint/sample.h"
#include "tests/cli/shell.h"

namespace pipewright {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing_checkpoint::TempFolder;
using testing_cli::Result;

constexpr const char* kConfig = R"(
[model]
name = "gpt"
layers = 2
dim = 16
seq = 16
[data]
name = "text"
batch = 6
tokens = 1000
[train]
steps = 8
[pipeline]
ranks = 2
micro_batches = 2
threads_per_rank = 1
)";

/// A folder with run.toml in it, and the program started there.
class Shell {
 public:
  Shell() { write_file(folder_ / "run.toml", kConfig, "test"); }

  Result operator()(const std::string& arguments, const std::string& after = "") const {
    return testing_cli::run_program(folder_.path(), arguments, after);
  }

  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  TempFolder folder_;
};

TEST(TrainProgram, JsonHasTheKeysOfTheContract) {
  const Shell pipewright;
  const Result result = pipewright("train run.toml --json");
  ASSERT_EQ(result.status, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("steps"), 8);
  for (const char* number : {"final_loss", "samples_per_second", "step_seconds", "bubble_fraction",
                             "predicted_bubble_fraction"}) {
    EXPECT_TRUE(out.at(number).is_number()) << number;
  }
  EXPECT_EQ(out.at("peak_bytes").size(), 2U);
  EXPECT_EQ(out.at("weights_sha256").get<std::string>().size(), 64U);
  EXPECT_EQ(out.at("run_dir"), "runs/run");
  EXPECT_THAT(result.err, HasSubstr("step 8/8"));
  EXPECT_EQ(pipewright("report runs/run").status, 0);
}

TEST(TrainProgram, ProcessesEndWithTheWeightsOfThreads) {
  const Shell pipewright;
  const Result threads = pipewright("train run.toml --json --set log.dir=threads");
  const std::string train = std::string(PIPEWRIGHT_PROGRAM) +
                            " train run.toml --json --set log.dir=processes --set "
                            "pipeline.transport=gloo";
  const Result processes = pipewright("launch -n 2 --log-dir logs -- " + train);
  ASSERT_EQ(processes.status, 0) << processes.err;
  EXPECT_EQ(json::parse(processes.out).at("weights_sha256"),
            json::parse(threads.out).at("weights_sha256"));
}

/// Half of the ranks see no scores, and each replica those of its half of the rows.
TEST(TrainProgram, ProcessesTellTheAreaUnderTheCurveOfThreads) {
  const Shell pipewright;
  write_file(pipewright.path("clicks.toml"), R"([model]
name = "deepfm"
width = 16
[data]
name = "clicks"
batch = 64
numeric = 3
fields = 7
values = 8
rows = 2000
validation_rows = 200
[train]
steps = 6
validate_every = 3
[pipeline]
ranks = 2
micro_batches = 2
[log]
every = 3
)",
             "test");
  const auto areas = [&](const std::string& dir) {
    std::vector<double> found;
    std::istringstream lines(read_file(pipewright.path(dir + "/metrics.jsonl"), "test"));
    for (std::string line; std::getline(lines, line);) {
      const json one = json::parse(line);
      const json& values = one.contains("validation") ? one["validation"] : one;
      if (values.contains("auc")) found.push_back(values["auc"].get<double>());
    }
    return found;
  };
  ASSERT_EQ(pipewright("train clicks.toml --set log.dir=threads").status, 0);
  const std::vector<double> expected = areas("threads");
  EXPECT_EQ(expected.size(), 5U) << "steps 1, 3 and 6, two validations";
  for (const std::string replicas : {"1", "2"}) {
    const std::string dir = "processes" + replicas;
    const Result result =
        pipewright("launch -n " + std::to_string(2 * std::stoi(replicas)) + " --log-dir logs -- " +
                   PIPEWRIGHT_PROGRAM + " train clicks.toml --set log.dir=" + dir +
                   " --set pipeline.transport=gloo --set data_parallel.replicas=" + replicas);
    ASSERT_EQ(result.status, 0) << result.err;
    const std::vector<double> found = areas(dir);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], replicas == "1" ? 0 : 5e-3) << dir << " " << i;
  }
}

TEST(TrainProgram, TellsAllMistakesAtOnce) {
  const Shell pipewright;
  const Result result =
      pipewright("train run.toml --set pipeline.rnks=3 --set model.layers=-1 --set data.name=txt");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("pipeline.rnks: unknown key; did you mean ranks?"));
  EXPECT_THAT(result.err, HasSubstr("model.layers"));
  EXPECT_THAT(result.err, HasSubstr("did you mean \"text\"?"));
  EXPECT_FALSE(std::filesystem::exists(pipewright.path("runs")));
}

TEST(TrainProgram, AnswersMistakesInWords) {
  const Shell pipewright;
  const auto expect = [&](const std::string& arguments, int status, const std::string& words) {
    const Result result = pipewright(arguments);
    EXPECT_EQ(result.status, status) << arguments;
    EXPECT_THAT(result.err, HasSubstr(words)) << arguments;
    EXPECT_THAT(result.err, Not(HasSubstr("terminate called")));
  };
  expect("train", 2, "config is required; see pipewright train --help");
  expect("train nowhere.toml", 2, "nowhere.toml");
  expect("train run.toml --sett a.b=c", 2, "--sett");
  expect("train run.toml --set data.path=nowhere.txt", 2, "nowhere.txt");
  expect("train run.toml --set pipeline.transport=gloo", 2, "pipewright launch");
  expect("train run.toml", 0, "");
  expect("train run.toml", 2, "--resume");
  expect("train run.toml --resume", 0, "");
}

TEST(TrainProgram, TellsWhereAMistakeStandsThatTheModelShows) {
  const Shell pipewright;
  write_file(pipewright.path("named.toml"),
             std::string(kConfig) + "[recompute]\nmode = \"named\"\ncheckpoints = [\"blok1\"]\n",
             "test");
  const Result result = pipewright("train named.toml");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("named.toml:19:15: recompute.checkpoints: \"blok1\" is no "
                                    "layer of the model; did you mean \"block1\"?"));
  EXPECT_FALSE(std::filesystem::exists(pipewright.path("runs")));
}

/// Files may not grow beyond 20 KiB, as on a full disk: the first checkpoint does not fit.
TEST(TrainProgram, SaysWhichFileAFullDiskRefuses) {
  const Shell pipewright;
  const Result full = testing_cli::run_program(
      pipewright.path(""), "--version > version && trap \"\" XFSZ && ulimit -f 20 && " +
                               std::string(PIPEWRIGHT_PROGRAM) + " train run.toml");
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("runs/run/checkpoints/"));
  EXPECT_THAT(full.err, HasSubstr("File too large"));
  EXPECT_THAT(full.err, Not(HasSubstr("terminate called")));
  const RunFacts facts = load_facts(pipewright.path("runs/run"));
  EXPECT_EQ(facts.sessions.back().outcome, Outcome::kFailed);
  const Result json = pipewright("train run.toml --json --set log.dir=other > /dev/full");
  EXPECT_EQ(json.status, 1);
  EXPECT_THAT(json.err, HasSubstr("cannot write to 'standard output': No space left on device"));
}

TEST(VerifyProgram, PrintsATableAndOneJsonObject) {
  const Shell pipewright;
  const Result table = pipewright("verify run.toml");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("interleaved-1f1b"));
  EXPECT_THAT(table.out, HasSubstr("in float64, against one forward and backward over the whole"));
  EXPECT_THAT(table.out, HasSubstr(", and all bits are the same"));
  const Result result = pipewright("verify run.toml --json");
  ASSERT_EQ(result.status, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("passed"), true);
  EXPECT_EQ(out.at("bitwise"), true);
  EXPECT_LE(out.at("max_relative_difference").get<double>(), 1e-10);
  EXPECT_GT(out.at("cases").size(), 20U);
  EXPECT_TRUE(out.at("first_difference").is_null());
  EXPECT_FALSE(std::filesystem::exists(pipewright.path("runs"))) << "it trains nothing";
}

TEST(VerifyProgram, ExitsWithOneAndNamesTheFirstTensorThatDiffers) {
  const Shell pipewright;
  const Result table = pipewright("verify run.toml --tolerance 0");
  EXPECT_EQ(table.status, 1);
  EXPECT_THAT(table.out, HasSubstr("DIFFERS"));
  EXPECT_THAT(table.out, HasSubstr("is the first that differs, by "));
  const Result result = pipewright("verify run.toml --tolerance 0 --json");
  EXPECT_EQ(result.status, 1);
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("passed"), false);
  EXPECT_TRUE(out.at("first_difference")
                  .at("tensor")
                  .get<std::string>()
                  .starts_with(out.at("first_difference").at("layer").get<std::string>()));
}

TEST(VerifyProgram, AnswersMistakesInWords) {
  const Shell pipewright;
  const auto expect = [&](const std::string& arguments, const std::string& words) {
    const Result result = pipewright(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_THAT(result.err, HasSubstr(words)) << arguments;
  };
  expect("verify", "config is required; see pipewright verify --help");
  expect("verify nowhere.toml", "nowhere.toml");
  expect("verify run.toml --set pipeline.rnks=3", "did you mean ranks?");
  expect("verify run.toml --tolerance x", "--tolerance");
  expect("verify run.toml --set pipeline.ranks=9",
         "--set pipeline.ranks=9: pipeline.ranks: cannot split 5 layers into 9 stages; write 5 or "
         "less");
}

TEST(PlanProgram, MeasuresAConfigsModelAndTrainRunsThePlan) {
  const Shell pipewright;
  const Result found = pipewright(
      "plan run.toml --ranks 2 --memory 1GiB --output plan.json --save-profiles sizes --json");
  ASSERT_EQ(found.status, 0) << found.err;
  const json out = json::parse(found.out);
  const json best = out.at("plans").at(0);
  EXPECT_EQ(best.at("ranks"), 2);
  EXPECT_EQ(best.at("peak_bytes").size(), 2U);
  EXPECT_GT(best.at("step_seconds").get<double>(), 0);
  EXPECT_TRUE(std::filesystem::exists(pipewright.path("sizes/size-1.json")));
  EXPECT_EQ(pipewright("plan --profile sizes/size-1.json --global-batch 6").status, 0);
  const Result trained = pipewright("train run.toml --plan plan.json --json");
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Result report = pipewright("report runs/run --json");
  ASSERT_EQ(report.status, 0) << report.err;
  const json facts = json::parse(report.out);
  EXPECT_EQ(facts.at("predicted_step_seconds"), best.at("step_seconds"));
  EXPECT_EQ(facts.at("predicted_peak_bytes"), best.at("peak_bytes"));
  EXPECT_EQ(facts.at("memory_bytes"), 1 << 30);
  EXPECT_EQ(read_file(pipewright.path("plan.json"), "test"),
            read_file(pipewright.path("runs/run/plan.json"), "test"));
}

TEST(PlanProgram, AnswersMistakesInWords) {
  const Shell pipewright;
  const auto expect = [&](const std::string& arguments, int status, const std::string& words) {
    const Result result = pipewright(arguments);
    EXPECT_EQ(result.status, status) << arguments;
    EXPECT_THAT(result.err, HasSubstr(words)) << arguments;
  };
  expect("plan", 2, "give a config, whose model is measured, or --profile");
  expect("plan run.toml --profile x.json", 2, "leave --profile out, or the config");
  expect("plan run.toml --set model.layers=0", 2, "model.layers");
  expect("plan run.toml --memory 1KiB", 1, "nothing fits; give more --memory or --ranks");
  expect("train run.toml --plan nowhere.json", 2, "nowhere.json");
  write_file(pipewright.path("bad.json"), "{}", "test");
  expect("train run.toml --plan bad.json", 2, "bad.json");
}

/// `pipewright train | head`: the reader goes, the training does not.
TEST(TrainProgram, GoesOnWhereItsReaderIsGone) {
  const Shell pipewright;
  const Result result =
      pipewright("train run.toml --set train.steps=50", " | head -n 1; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(result.status, 0) << result.err;
  const RunFacts facts = load_facts(pipewright.path("runs/run"));
  EXPECT_EQ(facts.sessions.back().outcome, Outcome::kFinished);
  EXPECT_EQ(facts.sessions.back().last_step, 50);
}

TEST(Models, AreListedWithTheirParameters) {
  const Shell pipewright;
  const Result result = pipewright("models");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("gpt: "));
  // 260 x 64 tokens, 64 x 64 positions, 4 blocks of 12 x 64 x 64 + 13 x 64, a norm.
  EXPECT_THAT(result.out, HasSubstr("7 layers, 220800 parameters"));
  EXPECT_THAT(result.out, HasSubstr("masked_text: "));
}

}  // namespace
}  // namespace pipewright
