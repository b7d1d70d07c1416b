// `pipewright report` as somebody at a shell uses it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipewright/base/file.h"
#include "tests/checkpoint/sample.h"
#include "tests/cli/shell.h"
#include "tests/run/sample.h"

namespace pipewright {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing_checkpoint::TempFolder;
using testing_cli::Result;

Result report(const TempFolder& dir, const std::string& arguments) {
  return testing_cli::run_program(dir.path(), "report " + arguments);
}

TEST(ReportCommand, JsonIsOneObjectWithTheRunsFacts) {
  const TempFolder dir;
  const std::string run = testing_run::make_sample_run(dir.path(), {.steps = 40});
  const Result result = report(dir, run + " --json");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("run"), "sample");
  EXPECT_EQ(out.at("run_dir"), run);
  EXPECT_EQ(out.at("steps"), 40);
  EXPECT_EQ(out.at("peak_bytes").size(), 4U);
  EXPECT_FALSE(out.at("advice").at("faster").empty());
}

TEST(ReportCommand, TextAndPage) {
  const TempFolder dir;
  const std::string run = testing_run::make_sample_run(dir.path(), {.steps = 40});
  const std::string page = dir / "page.html";
  const Result result = report(dir, run + " --html " + page);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("sample: finished after 40 steps"),
                                HasSubstr("Where the time went"), HasSubstr("The page: " + page)));
  EXPECT_THAT(read_file(page, "test"), StartsWith("<!doctype html>"));
}

TEST(ReportCommand, MistakesAreAnsweredInWordsWithStatus2) {
  const TempFolder dir;
  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const Result result = report(dir, arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_THAT(result.err, AllOf(StartsWith("pipewright: "), HasSubstr(words))) << arguments;
  };
  refused("", "required");
  refused(dir / "none", "[run] there is no folder");
  refused(dir.path(), "is not the folder of a run: it has no run.json");
  std::filesystem::create_directories(dir / "empty");
  refused(dir / "empty", "it is empty");
  const std::string run = testing_run::make_sample_run(dir.path(), {.steps = 20});
  write_file(run + "/plan.json", "{\"format\": ", "test");
  refused(run, "plan.json] no JSON: mistake at line 1");
  write_file(run + "/plan.json", "{\"format\": 3}", "test");
  refused(run, "plan.format is number, not a string");
  refused(run + " --htlm x", "--htlm");
}

TEST(ReportCommand, ACutLineOfAKilledRunIsToldAndTolerated) {
  const TempFolder dir;
  const std::string run = testing_run::make_sample_run(dir.path(), {.steps = 20});
  const std::string metrics = run + "/metrics.jsonl";
  write_file(metrics, read_file(metrics, "test") + "{\"step\": 21, \"lo", "test");
  const Result result = report(dir, run);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("last line of metrics.jsonl is cut short"));
}

TEST(ReportCommand, ADiskThatRefusesIsAFailureWithStatus1) {
  const TempFolder dir;
  const std::string run = testing_run::make_sample_run(dir.path(), {.steps = 20});
  const Result page = report(dir, run + " --html /proc/none/page.html");
  EXPECT_EQ(page.status, 1);
  EXPECT_THAT(page.err, HasSubstr("cannot write '/proc/none/page.html'"));
  const Result full = report(dir, run + " --json >/dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot write to 'standard output': No space left on device"));
}

}  // namespace
}  // namespace pipewright
