// `pipewright init` as somebody at a shell uses it, and the page that it prints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/config/read.h"
#include "pipewright/schedule/schedule.h"
#include "tests/cli/shell.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_cli::Result;

class Init : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Runs the program in a folder of the test's own.
  Result init(const std::string& arguments) const {
    Result result = testing_cli::run_program(folder_.string(), "init " + arguments);
    result.out += result.err;  // which the tests take together
    return result;
  }

  std::string path_of(const std::string& file) const { return folder_ / file; }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("pipewright_init_" + std::to_string(getpid()));
};

TEST_F(Init, WritesAConfigThatReads) {
  const Result result = init("small");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "wrote small.toml\nedit it, then: pipewright train small.toml\n");
  const config::Config config = config::read(path_of("small.toml"), {}, {});
  EXPECT_EQ(config.model.name, "gpt");
  EXPECT_EQ(config.data.name, "text");
  EXPECT_GT(config.data.batch, 0);
  EXPECT_GT(config.train.steps, 0);
}

TEST_F(Init, TheSchedulesOfTheProgramStandInIt) {
  ASSERT_EQ(init("small").status, 0);
  const std::string text = read_file(path_of("small.toml"), "test");
  for (const ScheduleInfo& info : all_schedules()) {
    const std::string line = "#   \"" + std::string(info.name) + "\"";
    EXPECT_EQ(text.find(line) == std::string::npos, info.forward_only) << info.name;
  }
}

TEST_F(Init, ReplacesAFileOnlyWhenTold) {
  write_file(path_of("small.toml"), "mine", "test");
  const Result refused = init("small");
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out,
            "pipewright: [init] 'small.toml' is there already; name another, or replace it with "
            "--force\n");
  EXPECT_EQ(read_file(path_of("small.toml"), "test"), "mine");
  EXPECT_EQ(init("small --force").status, 0);
  EXPECT_THAT(read_file(path_of("small.toml"), "test"), StartsWith("# A config"));
}

TEST_F(Init, TakesAnotherModelAndAnotherFile) {
  EXPECT_EQ(init("--model bert --data text --output other.conf").status, 0);
  const config::Config named = config::read(path_of("other.conf"), {}, {});
  EXPECT_EQ(named.model.name, "bert");
  EXPECT_EQ(named.data.name, "text");
  EXPECT_EQ(init("script.toml --model own.pt").status, 0);
  const config::Config script = config::read(path_of("script.toml"), {}, {});
  EXPECT_EQ(script.model.file, "own.pt");
  EXPECT_EQ(script.model.name, "");
}

TEST_F(Init, EveryModelHasAConfigThatReads) {
  const config::Known known = catalog::known();
  for (const config::Component& model : known.models) {
    EXPECT_EQ(init(model.name + " --model " + model.name).status, 0);
    const std::string file = path_of(model.name + ".toml");
    EXPECT_EQ(config::read(file, {}, known).model.name, model.name);
  }
}

TEST_F(Init, NamesWhatWasProbablyMeant) {
  EXPECT_EQ(init("x --model gtp").out,
            "pipewright: [init] there is no model 'gtp'; did you mean 'gpt'?\n");
  EXPECT_THAT(init("x --data quux").out,
              StartsWith("pipewright: [init] there is no data source 'quux'; there are text, "));
  EXPECT_FALSE(std::filesystem::exists(path_of("x.toml")));
}

TEST_F(Init, NeedsAName) {
  const Result result = init("");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "pipewright: [init] no name; write pipewright init NAME, for NAME.toml\n");
}

TEST_F(Init, SaysWhyItCannotWrite) {
  const Result result = init("no/such/folder");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, HasSubstr("[init] cannot write 'no/such/folder.toml': No such file"));
}

/// PIPEWRIGHT_UPDATE_GOLDEN=1 writes the page anew.
TEST_F(Init, TheReferencePageIsUpToDate) {
  const std::string page =
      (std::filesystem::path(PIPEWRIGHT_TEST_DATA).parent_path() / "docs/configuration.md")
          .string();
  const Result result = init("--reference");
  EXPECT_EQ(result.status, 0);
  if (getenv("PIPEWRIGHT_UPDATE_GOLDEN") != nullptr) write_file(page, result.out, "test");
  EXPECT_EQ(result.out, read_file(page, "test"))
      << "run PIPEWRIGHT_UPDATE_GOLDEN=1 build/tests/cli_tests --gtest_filter='Init.*'";
}

}  // namespace
}  // namespace pipewright
