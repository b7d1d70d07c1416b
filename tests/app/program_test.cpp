// `pipewright train` and `models` as somebody at a shell uses them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
