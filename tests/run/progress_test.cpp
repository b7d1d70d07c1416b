#include "pipewright/run/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace pipewright {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

/// A terminal, or a file, and a clock that a test moves.
struct Screen {
  double now = 100;
  int width = 110;
  std::vector<std::string> written;

  Progress progress(ProgressOptions options) {
    return {options, [this] { return now; }, [this] { return width; },
            [this](std::string_view text) { written.emplace_back(text); }};
  }
  std::string last() const { return written.empty() ? "" : written.back(); }
};

/// Columns that a line takes: what is no ASCII is one column wide here.
int columns(std::string_view line) {
  if (line.starts_with("\r\033[K")) line.remove_prefix(4);
  return static_cast<int>(std::count_if(line.begin(), line.end(), [](char c) {
    return c != '\n' && (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

const ProgressFigures kFigures{2.5, 512, 0.125};

TEST(Progress, TheBarHasAllFiguresWhereThereIsRoom) {
  Screen screen;
  Progress progress = screen.progress({.num_steps = 10, .terminal = true, .unicode = false});
  screen.now += 2;
  progress.step(1, kFigures);
  EXPECT_EQ(
      screen.last(),
      "\r\033[Kstep 1/10 ====.................................... loss 2.5000  512 samples/s  "
      "bubble 12.5%  0:18 left");
}

TEST(Progress, IsNeverWiderThanTheTerminal) {
  for (int width = 1; width < 160; ++width) {
    Screen screen;
    screen.width = width;
    Progress progress = screen.progress({.num_steps = 1000, .terminal = true});
    screen.now += 2;
    progress.step(340, kFigures);
    EXPECT_LE(columns(screen.last()), std::max(0, width - 1)) << screen.last();
    EXPECT_GE(columns(screen.last()), std::min(width - 1, 14)) << screen.last();
  }
}

TEST(Progress, GivesUpTheBubbleThenTheRateThenTheTime) {
  Screen screen;
  const auto line = [&](int width) {
    screen.width = width;
    Progress progress = screen.progress({.num_steps = 10, .terminal = true});
    progress.step(1, kFigures);
    return screen.last();
  };
  EXPECT_THAT(line(75), AllOf(HasSubstr("bubble"), HasSubstr("samples/s"), HasSubstr("left")));
  EXPECT_THAT(line(60), AllOf(Not(HasSubstr("bubble")), HasSubstr("samples/s"), HasSubstr("left")));
  EXPECT_THAT(line(48), AllOf(Not(HasSubstr("samples/s")), HasSubstr("loss"), HasSubstr("left")));
  EXPECT_THAT(line(36), AllOf(Not(HasSubstr("left")), HasSubstr("loss")));
  EXPECT_THAT(line(22), AllOf(HasSubstr("step 1/10"), Not(HasSubstr("loss"))));
}

TEST(Progress, FollowsATerminalThatIsResized) {
  Screen screen;
  Progress progress = screen.progress({.num_steps = 10, .terminal = true, .least_interval = 0});
  progress.step(1, kFigures);
  const int wide = columns(screen.last());
  screen.width = 40;
  progress.step(2, kFigures);
  EXPECT_LT(columns(screen.last()), wide);
}

TEST(Progress, TimeLeftCountsFromTheStepThatARunContinuedFrom) {
  Screen screen;
  Progress progress =
      screen.progress({.first_step = 80, .num_steps = 100, .terminal = true, .least_interval = 0});
  for (int step = 81; step <= 90; ++step) {
    screen.now += 3;
    progress.step(step, kFigures);
  }
  EXPECT_THAT(screen.last(), HasSubstr("step 90/100"));
  EXPECT_THAT(screen.last(), HasSubstr("0:30 left"));
}

TEST(Progress, DrawsOnATerminalAtMostSoOften) {
  Screen screen;
  Progress progress = screen.progress({.num_steps = 1000, .terminal = true, .least_interval = 0.1});
  for (int step = 1; step <= 500; ++step) {
    screen.now += 0.01;
    progress.step(step, kFigures);
  }
  EXPECT_GT(screen.written.size(), 40U);
  EXPECT_LT(screen.written.size(), 60U);
  progress.step(1000, kFigures);  // the last step is always shown
  EXPECT_THAT(screen.last(), HasSubstr("step 1000/1000"));
}

TEST(Progress, WritesPlainLinesWhereThereIsNoTerminal) {
  Screen screen;
  Progress progress = screen.progress({.num_steps = 1000});
  for (int step = 1; step <= 1000; ++step) {
    screen.now += 1;
    progress.step(step, kFigures);
  }
  progress.finish();
  ASSERT_THAT(screen.written, SizeIs(21));
  EXPECT_EQ(screen.written[0],
            "step    1/1000  loss 2.5000  512 samples/s  bubble 12.5%  16:39 left\n");
  EXPECT_THAT(screen.last(), StartsWith("step 1000/1000"));
  for (const std::string& line : screen.written) EXPECT_EQ(line.find('\033'), std::string::npos);
}

TEST(Progress, NotesStayAboveTheBar) {
  Screen screen;
  Progress progress = screen.progress({.num_steps = 10, .terminal = true, .unicode = false});
  progress.step(1, kFigures);
  progress.note("saved checkpoints/step-00000001");
  EXPECT_THAT(screen.last(), StartsWith("\r\033[Ksaved checkpoints/step-00000001\nstep 1/10 ===="));
  progress.finish();
  EXPECT_EQ(screen.last().back(), '\n');
  const std::size_t lines = screen.written.size();
  progress.finish();
  EXPECT_EQ(screen.written.size(), lines);

  Screen file;
  Progress plain = file.progress({.num_steps = 10});
  plain.note("saved");
  EXPECT_THAT(file.written, ElementsAre("saved\n"));
}

TEST(Progress, AFailingTerminalIsTheCallersError) {
  Progress progress(
      {.num_steps = 2}, [] { return 0.0; }, [] { return 80; },
      [](std::string_view) { throw std::runtime_error("gone"); });
  EXPECT_THROW(progress.step(1, kFigures), std::runtime_error);
}

TEST(FormatDuration, ReadsAsAClock) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(41.4), "0:41");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3 * 3600 + 12), "3:00:12");
  EXPECT_EQ(format_duration(86400 + 3600), "1 day 1:00");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2 days 3:00");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace pipewright
