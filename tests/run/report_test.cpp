#include "pipewright/run/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "pipewright/base/units.h"
#include "tests/checkpoint/sample.h"
#include "tests/run/sample.h"

namespace pipewright {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing_checkpoint::TempFolder;
using testing_run::make_sample_run;
using testing_run::sample_profile;

RunReport sample_report(const testing_run::SampleOptions& options = {}) {
  const TempFolder dir;
  return make_report(read_run(make_sample_run(dir.path(), options)));
}

TEST(Report, HeadlineIsThatOfTheMetrics) {
  const RunReport report = sample_report();
  const Headline& headline = report.headline;
  EXPECT_EQ(headline.state, "finished");
  EXPECT_EQ(headline.steps, 300);
  const auto& steps = report.run.metrics.steps;
  EXPECT_EQ(headline.first_loss, steps.front().loss);
  double sum = 0;
  for (std::size_t i = 285; i < 300; ++i) sum += steps[i].loss;
  EXPECT_NEAR(*headline.final_loss, sum / 15, 1e-12);
  std::vector<double> seconds;
  for (const StepMetrics& step : steps) seconds.push_back(step.seconds);
  std::sort(seconds.begin(), seconds.end());
  EXPECT_EQ(headline.step_seconds, seconds[150]);
  EXPECT_EQ(headline.predicted_step_seconds, report.run.plan->step_seconds);
  EXPECT_EQ(headline.peak_bytes, steps[7].peak_bytes);
  EXPECT_EQ(headline.memory_bytes, std::int64_t{640} << 20);
}

/// Two ranks that never wait: each step takes 3, its backward on the first rank comes one step
/// late.
TEST(Report, StepsOfAnAsynchronousScheduleCountFromOneToTheNext) {
  RunRecord run;
  run.metrics.steps.resize(3);
  for (StepMetrics& step : run.metrics.steps) step.seconds = 3;
  const auto span = [](double start, double end, int stage, Kind kind) {
    return Span{
        .start = start, .end = end, .stage = stage, .micro_batch = 0, .kind = kind, .version = 0};
  };
  Timeline timeline;
  timeline.time_unit = "s";
  timeline.ranks = {{span(0, 1, 0, Kind::kForward), span(4, 6, 0, Kind::kBackward)},
                    {span(1, 2, 1, Kind::kForward), span(2, 4, 1, Kind::kBackward)}};
  run.measured = TimelineFile{3, timeline};
  const RunReport report = make_report(run);
  EXPECT_EQ(report.measured->compute, 6);
  EXPECT_EQ(report.measured->total, 6);
  EXPECT_EQ(report.measured->bubble, 0);
  EXPECT_EQ(report.ranks.at(0).idle, 0);
}

TEST(Report, TheWarmUpOfAnAsynchronousScheduleIsNotPredictedForItsSteps) {
  Profile profile = sample_profile();
  const LayerCost block = profile.layers[1];
  for (LayerCost& layer : profile.layers) layer = block;  // all stages alike
  Plan plan = testing_run::sample_plan(profile);
  plan.schedule = "pipedream";
  plan.sizes = {4, 4, 4, 4};
  RunRecord run;
  run.plan = predict(std::span(&profile, 1), plan);
  run.predicted = TimelineFile{0, predicted_timeline(std::span(&profile, 1), *run.plan)};
  ASSERT_GT(StepTimes(run.predicted->timeline).bubble_fraction(), 0.05);
  const RunReport report = make_report(run);
  EXPECT_NEAR(report.predicted->bubble / report.predicted->total, 0, 1e-9);
  run.predicted->timeline.ranks.emplace_back();  // of a folder that somebody changed
  EXPECT_GT(make_report(run).predicted->total, 0);
}

TEST(Report, BestOfAValidationIsTheLeastOfALossAndTheMostOfAnAccuracy) {
  RunRecord run;
  run.metrics.validations = {{10, 0, {{"loss", 2.0}, {"accuracy", 0.5}}},
                             {20, 0, {{"loss", 1.0}, {"accuracy", 0.9}}},
                             {30, 0, {{"loss", 1.5}, {"accuracy", 0.7}}}};
  const Headline headline = make_report(run).headline;
  EXPECT_EQ(headline.validation.at("loss").best, 1.0);
  EXPECT_EQ(headline.validation.at("loss").best_step, 20);
  EXPECT_EQ(headline.validation.at("loss").last, 1.5);
  EXPECT_EQ(headline.validation.at("accuracy").best, 0.9);
  EXPECT_TRUE(less_is_better("Perplexity"));
  EXPECT_FALSE(less_is_better("auc"));
}

TEST(Report, StatesTellHowARunEnded) {
  RunRecord run;
  EXPECT_EQ(make_report(run).headline.state, "empty");
  run.facts.sessions = {{0, 0, 0, 0, 0, Outcome::kRunning, ""}};
  EXPECT_EQ(make_report(run).headline.state, "killed");
  run.is_live = true;
  EXPECT_EQ(make_report(run).headline.state, "running");
  run.facts.sessions[0].outcome = Outcome::kFailed;
  EXPECT_EQ(make_report(run).headline.state, "failed");
}

TEST(Report, JsonHasTheSameFactsAndItsKeysAreAContract) {
  const RunReport report = sample_report();
  const json out = json::parse(to_json(report));
  for (const char* key : {"run",
                          "run_dir",
                          "model",
                          "state",
                          "steps",
                          "final_loss",
                          "validation",
                          "samples_per_second",
                          "step_seconds",
                          "predicted_step_seconds",
                          "bubble_fraction",
                          "predicted_bubble_fraction",
                          "peak_bytes",
                          "predicted_peak_bytes",
                          "memory_bytes",
                          "skipped_steps",
                          "training_seconds",
                          "plan",
                          "breakdown",
                          "ranks",
                          "stages",
                          "advice",
                          "notes",
                          "sessions",
                          "checkpoints"})
    EXPECT_TRUE(out.contains(key)) << key;
  double sum = 0;
  for (const auto& [name, share] : out.at("breakdown").at("measured").items())
    sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(out.at("stages").size(), 4U);
  EXPECT_EQ(out.at("stages")[0].at("layers"), "embed to block3");
  EXPECT_EQ(out.at("ranks")[2].at("stages"), json::array({2}));
  for (const auto& one : out.at("advice").at("faster")) {
    EXPECT_GE(one.at("speedup"), 1.01);
    EXPECT_FALSE(one.at("settings").empty());
    EXPECT_EQ(one.at("peak_bytes").size(), 4U);
  }
}

TEST(Report, RanksShareTheWholeStep) {
  const RunReport report = sample_report({.recompute = true});
  const double step = StepTimes(report.run.measured->timeline).step_time();
  ASSERT_EQ(report.ranks.size(), 4U);
  for (const RankReport& rank : report.ranks) {
    EXPECT_GT(rank.recompute, 0);
    EXPECT_NEAR(rank.compute + rank.recompute + rank.update + rank.communication + rank.idle, step,
                1e-9 * step);
  }
}

TEST(Report, WithoutAPredictionTheMeasuredTimesAreSimulated) {
  const TempFolder dir;
  RunRecord run = read_run(make_sample_run(dir.path()));
  run.predicted.reset();
  const RunReport report = make_report(std::move(run));
  ASSERT_EQ(report.timelines.size(), 2U);
  EXPECT_THAT(report.timelines[1].name, HasSubstr("Simulated"));
  const double step = StepTimes(report.timelines[0]).step_time();
  EXPECT_NEAR(StepTimes(report.timelines[1]).step_time(), step, 1e-9 * step);
}

TEST(Report, LossesThatAreNoNumbersAreLeftOutOfFiguresAndAreNullInJson) {
  const TempFolder dir;
  RunRecord run = read_run(make_sample_run(dir.path(), {.steps = 40}));
  for (StepMetrics& step : run.metrics.steps) step.loss = std::numeric_limits<double>::quiet_NaN();
  const RunReport report = make_report(std::move(run));
  EXPECT_FALSE(report.headline.final_loss.has_value());
  EXPECT_TRUE(json::parse(to_json(report)).at("final_loss").is_null());
  EXPECT_THAT(to_html(report), HasSubstr("\"mean\":[null,null"));
}

TEST(Report, TextHasFiguresBreakdownAdviceAndNotes) {
  const RunReport report = sample_report();
  const std::string text = to_text(report, 100);
  EXPECT_THAT(text, AllOf(HasSubstr("sample: finished after 300 steps; 1f1b over 4 ranks"),
                          HasSubstr("Where the time went"), HasSubstr("imbalance"),
                          HasSubstr("--set pipeline.schedule="), HasSubstr("validation accuracy"),
                          HasSubstr("Note: The session of")));
  EXPECT_THAT(text, HasSubstr(format_seconds(report.headline.step_seconds)));
}

TEST(Report, OfARunWithoutAnythingSaysSo) {
  const TempFolder dir;
  const RunFolder folder = RunFolder::create(dir.path(), "bare", {});
  const RunReport report = make_report(read_run(folder.path()));
  EXPECT_THAT(report.run.notes, Contains(HasSubstr("no step was logged")));
  EXPECT_THAT(to_text(report, 80), HasSubstr("Not known: the run has no plan.json"));
  EXPECT_TRUE(json::parse(to_json(report)).at("breakdown").at("measured").is_null());
}

TEST(ReportPage, IsOneFileThatNamesNoNetworkAndNoScriptEndsInItsData) {
  const TempFolder dir;
  RunRecord run = read_run(make_sample_run(dir.path(), {.steps = 40}));
  run.facts.model = "</script><script>alert(1)</script>";
  run.config = "PIPEWRIGHT_SCRIPT PIPEWRIGHT_DATA";
  const std::string page = to_html(make_report(std::move(run)));
  EXPECT_THAT(page, Not(HasSubstr("</script><script>alert(1)")));
  EXPECT_THAT(page, Not(HasSubstr("src=\"http")));
  std::size_t scripts = 0;
  for (std::size_t at = page.find("</script>"); at != std::string::npos;
       at = page.find("</script>", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2U);
  EXPECT_THAT(page, HasSubstr("class LineChart"));
}

TEST(ReportPage, LongRunsAreDrawnByBuckets) {
  RunRecord run;
  for (std::int64_t step = 1; step <= 5000; ++step) {
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = static_cast<double>(step % 10);
    run.metrics.steps.push_back(metrics);
  }
  const std::string page = to_html(make_report(std::move(run)));
  const std::size_t at = page.find("\"series\":") + 9;
  int depth = 0;
  std::size_t end = at;
  do {
    depth += page[end] == '{' ? 1 : page[end] == '}' ? -1 : 0;
    ++end;
  } while (depth > 0);
  const json series = json::parse(page.substr(at, end - at));
  EXPECT_EQ(series.at("steps_a_point"), 7);
  EXPECT_EQ(series.at("step").size(), 715U);
  EXPECT_EQ(series.at("step").back(), 5000);
  EXPECT_EQ(series.at("loss").at("low")[0], 1);
  EXPECT_EQ(series.at("loss").at("high")[0], 7);
  EXPECT_EQ(series.at("loss").at("mean")[0], 4);
}

}  // namespace
}  // namespace pipewright
