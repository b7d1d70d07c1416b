#include "pipewright/run/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "pipewright/base/file.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_checkpoint::in_child;
using testing_checkpoint::TempFolder;

StepMetrics sample_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.unix_time = 1.75e9 + static_cast<double>(step);
  metrics.loss = 1.0 / static_cast<double>(step);
  metrics.learning_rate = 1e-3;
  metrics.samples_per_second = 51.25;
  metrics.seconds = 0.625;
  metrics.bubble = 0.2;
  metrics.gradient_norm = 1.5;
  metrics.loss_scale = 1024;
  metrics.peak_bytes = {100, 90};
  metrics.stage_peak_bytes = {60, 50, 45, 40};
  return metrics;
}

ValidationMetrics sample_validation(std::int64_t step) {
  return {step, 1.75e9, {{"accuracy", 0.75}, {"loss", 0.5}}};
}

std::string sample_text(std::int64_t steps) {
  std::string text;
  for (std::int64_t step = 1; step <= steps; ++step) {
    text += to_json_line(sample_step(step));
    if (step % 2 == 0) text += to_json_line(sample_validation(step));
  }
  return text;
}

TEST(Metrics, AreReadAsTheyWereWritten) {
  const Metrics metrics = parse_metrics(sample_text(5), "m");
  ASSERT_EQ(metrics.steps.size(), 5U);
  for (std::int64_t step = 1; step <= 5; ++step)
    EXPECT_EQ(metrics.steps[static_cast<std::size_t>(step - 1)], sample_step(step));
  ASSERT_EQ(metrics.validations.size(), 2U);
  EXPECT_EQ(metrics.validations[1], sample_validation(4));
  EXPECT_EQ(metrics.cut_bytes, 0);
}

TEST(Metrics, ALineIsOneJsonObjectWithTheNamesOfThePage) {
  const std::string line = to_json_line(sample_step(3));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto object = nlohmann::json::parse(line);
  for (const char* name :
       {"step", "time", "loss", "lr", "samples_per_second", "seconds", "bubble", "gradient_norm",
        "loss_scale", "skipped", "peak_bytes", "stage_peak_bytes"})
    EXPECT_TRUE(object.contains(name)) << name;
  EXPECT_EQ(object.size(), 12U);
}

TEST(Metrics, NumbersThatAreNotFiniteComeBack) {
  StepMetrics step = sample_step(1);
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  step.skipped = true;
  const Metrics metrics = parse_metrics(to_json_line(step), "m");
  EXPECT_TRUE(std::isnan(metrics.steps[0].loss));
  EXPECT_EQ(metrics.steps[0].gradient_norm, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(metrics.steps[0].skipped);
}

TEST(Metrics, ALastLineIsToleratedHoweverMuchOfItIsMissing) {
  const std::string whole = sample_text(2);
  const std::string last = to_json_line(sample_step(3));
  for (std::size_t length = 1; length < last.size(); ++length) {
    const Metrics metrics = parse_metrics(whole + last.substr(0, length), "m");
    EXPECT_EQ(metrics.steps.size(), 2U);
    EXPECT_EQ(metrics.cut_bytes, static_cast<std::int64_t>(length));
  }
}

TEST(Metrics, DamageElsewhereIsRefusedWithItsLine) {
  const std::string one = to_json_line(sample_step(1));
  const std::string two = to_json_line(sample_step(2));
  EXPECT_THAT(refusal([&] { parse_metrics(one.substr(0, 30) + "\n" + two, "m.jsonl"); }),
              HasSubstr("[m.jsonl line 1] no JSON: mistake at line 1"));
  EXPECT_THAT(refusal([&] { parse_metrics(two + one, "m.jsonl"); }),
              HasSubstr("[m.jsonl line 2] step 1 stands after step 2"));
  EXPECT_THAT(refusal([&] { parse_metrics(one + one, "m.jsonl"); }),
              HasSubstr("step 1 stands after step 1"));
  EXPECT_THAT(refusal([] { parse_metrics("[]\n", "m.jsonl"); }), HasSubstr("not an object"));
  EXPECT_THAT(refusal([] { parse_metrics("{\"step\": -1}\n", "m.jsonl"); }),
              HasSubstr("line.step is not a whole number from 0"));
  EXPECT_THAT(refusal([] { parse_metrics("{\"step\": 1, \"time\": 2}\n", "m.jsonl"); }),
              HasSubstr("line.loss is missing"));
}

TEST(Metrics, WrongTypesAndUnknownMembersAreRefusedByName) {
  const auto with = [](const char* name, const nlohmann::json& value) {
    auto object = nlohmann::json::parse(to_json_line(sample_step(1)));
    object[name] = value;
    return refusal([&] { parse_metrics(object.dump() + "\n", "m"); });
  };
  EXPECT_THAT(with("loss", "low"), HasSubstr("loss is \"low\", not a number"));
  EXPECT_THAT(with("seconds", "nan"), HasSubstr("line.seconds is string, not a number"));
  EXPECT_THAT(with("skipped", 1), HasSubstr("line.skipped is neither true nor false"));
  EXPECT_THAT(with("peak_bytes", {1, -2}), HasSubstr("line.peak_bytes[1] is not a whole number"));
  EXPECT_THAT(with("los", 1), HasSubstr("line.los is no member there"));
  EXPECT_THAT(refusal([] {
                parse_metrics("{\"step\": 1, \"time\": 2, \"validation\": {\"a\": true}}\n", "m");
              }),
              HasSubstr("a is true, not a number"));
}

TEST(MetricsUpTo, KeepsWholeLinesUpToTheStepAndCountsTheRest) {
  const std::string text = sample_text(6) + "{\"step\": 7, \"lo";
  const MetricsUpTo kept = metrics_up_to(text, "m", 4);
  EXPECT_EQ(kept.text, sample_text(4));
  EXPECT_EQ(kept.dropped_steps, 2);
  EXPECT_EQ(kept.cut_bytes, 15);
  EXPECT_EQ(metrics_up_to(sample_text(4), "m", 9).text, sample_text(4));
}

TEST(MetricsWriter, LinesAreInTheFileAtOnce) {
  const TempFolder dir;
  MetricsWriter writer(dir / "m");
  writer.write(sample_step(1));
  EXPECT_EQ(read_file(dir / "m", "test"), to_json_line(sample_step(1)));
  writer.write(sample_validation(1));
  EXPECT_EQ(parse_metrics(read_file(dir / "m", "test"), "m").validations.size(), 1U);
}

TEST(MetricsWriter, AFullDiskIsAnErrorThatNamesTheFileAndSpoilsNoLine) {
  const TempFolder dir;
  const std::string line = to_json_line(sample_step(1));
  int num_refused = 0;
  for (rlim_t limit = 0; limit < 3 * line.size(); limit += 11) {
    const std::string path = dir / std::to_string(limit);
    const int lines = in_child([&] {
      // Instead of the signal: write() fails as it does on a full disk.
      const rlimit bound{limit, limit};
      if (std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &bound) != 0)
        return 77;
      MetricsWriter writer(path);
      for (int written = 0; written < 3; ++written) {
        try {
          writer.write(sample_step(written + 1));
        } catch (const StorageError& error) {
          const std::string words = error.what();
          const bool clear = words.find(path) != std::string::npos &&
                             words.find("File too large") != std::string::npos;
          return clear ? written : 78;
        }
      }
      return 79;
    });
    ASSERT_EQ(lines, static_cast<int>(limit / line.size())) << limit;
    const Metrics left = parse_metrics(read_file(path, "test"), path);
    EXPECT_EQ(left.steps.size(), static_cast<std::size_t>(lines));
    EXPECT_EQ(left.cut_bytes, 0);
    ++num_refused;
  }
  EXPECT_GT(num_refused, 30);
}

TEST(MetricsWriter, DeviceThatIsFullIsAnError) {
  MetricsWriter writer("/dev/full");
  EXPECT_THAT(refusal([&] { writer.write(sample_step(1)); }),
              AllOf(HasSubstr("cannot write '/dev/full': No space left on device"),
                    HasSubstr("the space left there")));
}

TEST(WriteAll, ABrokenPipeIsAnErrorAndNoSignal) {
  const int status = in_child([] {
    if (std::signal(SIGPIPE, SIG_DFL) == SIG_ERR) return 77;  // as from a shell: it would kill
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return 77;
    close(ends[0]);
    try {
      write_all(ends[1], "hello", "the terminal");
      return 1;
    } catch (const StorageError& error) {
      return std::string(error.what()) ==
                     "[run] cannot write to 'the terminal': Broken pipe; its reader is gone"
                 ? 0
                 : 2;
    }
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pipewright
