#include "pipewright/trace/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "tests/trace/sample.h"

namespace pipewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// 2 ranks, 4 micro-batches: the picture in text.h.
Timeline one_f_one_b() {
  Timeline timeline;
  timeline.name = "1f1b";
  const Kind f = Kind::kForward;
  const Kind b = Kind::kBackward;
  timeline.ranks = {{make_span(f, 0, 0, 1), make_span(f, 1, 1, 2), make_span(b, 0, 4, 6),
                     make_span(f, 2, 6, 7), make_span(b, 1, 7, 9), make_span(f, 3, 9, 10),
                     make_span(b, 2, 10, 12), make_span(b, 3, 13, 15)},
                    {make_span(f, 0, 1, 2), make_span(b, 0, 2, 4), make_span(f, 1, 4, 5),
                     make_span(b, 1, 5, 7), make_span(f, 2, 7, 8), make_span(b, 2, 8, 10),
                     make_span(f, 3, 10, 11), make_span(b, 3, 11, 13)}};
  return timeline;
}

TEST(TextTimeline, LinesUpEqualUnits) {
  EXPECT_EQ(draw_text(one_f_one_b()),
            "1f1b: step time 15, bubble 20.0%\n"
            "rank 0 |F0-F1-......B0----F2-B1----F3-B2----...B3----|\n"
            "rank 1 |...F0-B0----F1-B1----F2-B2----F3-B3----......|\n"
            "        0              5              10\n"
            "F forward  B backward  . idle\n");
}

TEST(TextTimeline, TakesFewerColumnsAUnitWhereTheWidthIsSmall) {
  EXPECT_EQ(lines_of(draw_text(one_f_one_b(), {.width = 40}))[1],
            "rank 0 |F0F1....B0--F2B1--F3B2--..B3--|");
  EXPECT_EQ(lines_of(draw_text(one_f_one_b(), {.width = 24}))[1], "rank 0 |FF..B0FB1FB2.B3|");
}

TEST(TextTimeline, FindsACommonUnitDespiteRounding) {
  Timeline timeline = one_f_one_b();
  for (auto& rank : timeline.ranks) {
    for (Span& span : rank) span.start = 0.1 * span.start + 3, span.end = 0.1 * span.end + 3;
  }
  EXPECT_EQ(lines_of(draw_text(timeline))[1], lines_of(draw_text(one_f_one_b()))[1]);
}

TEST(TextTimeline, DrawsToScaleWithoutACommonUnit) {
  Timeline timeline;
  timeline.ranks = {
      {make_span(Kind::kForward, 0, 0, 1), make_span(Kind::kBackward, 0, 1, 3.14159)}};
  const std::string line = lines_of(draw_text(timeline, {.width = 109}))[1];
  EXPECT_EQ(line.size(), 109U);
  EXPECT_EQ(line.find("B0"), 8 + 32U);  // 100 / 3.14159
}

TEST(TextTimeline, ShowsTheKindThatFillsMostOfAColumn) {
  Timeline timeline;
  timeline.ranks.resize(2);
  for (int i = 0; i < 10000; ++i) {  // one third F, two thirds B; then one third F, else idle
    timeline.ranks[0].push_back(make_span(Kind::kForward, i, i, i + 0.33));
    timeline.ranks[0].push_back(make_span(Kind::kBackward, i, i + 0.33, i + 1));
    timeline.ranks[1].push_back(make_span(Kind::kForward, i, i, i + 0.33));
  }
  const auto lines = lines_of(draw_text(timeline));
  EXPECT_EQ(lines[1], "rank 0 |" + std::string(91, 'B') + "|");
  EXPECT_EQ(lines[2], "rank 1 |" + std::string(91, '.') + "|");
}

TEST(TextTimeline, TellsChunksApartByCase) {
  const std::string text = draw_text(chunked_timeline(2, 2));
  EXPECT_THAT(text, HasSubstr("|F0-I0-W0-f0-i0-w0-...F1-"));
  EXPECT_THAT(text, HasSubstr("upper case: a rank's first stage, lower case: its second"));
  Timeline three;
  for (int i = 0; i < 3; ++i)
    three.ranks.resize(1), three.ranks[0].push_back(make_span(Kind::kForward, 0, i, i + 1, i));
  EXPECT_THAT(draw_text(three), HasSubstr("|F0-f0-F0-|"));
  EXPECT_THAT(draw_text(three), HasSubstr("take turns over a rank's 3 stages"));
}

TEST(TextTimeline, LegendListsOnlyWhatOccursAndKeepsTheWidth) {
  EXPECT_THAT(draw_text(one_f_one_b()), Not(HasSubstr("recompute")));
  const std::string text = draw_text(chunked_timeline(2, 2), {.width = 60});
  EXPECT_THAT(text, HasSubstr("+ reduce gradients"));
  EXPECT_THAT(text, HasSubstr("S optimizer step"));
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 60U) << line;
}

TEST(TextTimeline, LeavesOutTheMiddleOfManyRanks) {
  const auto lines = lines_of(draw_text(gpipe_timeline(600, 4), {.max_ranks = 6}));
  ASSERT_EQ(lines.size(), 1 + 6 + 1 + 2U);
  EXPECT_EQ(lines[4], "... 594 ranks left out ...");
  EXPECT_THAT(lines[3], HasSubstr("rank   2 |"));
  EXPECT_THAT(lines[5], HasSubstr("rank 597 |"));
}

TEST(TextTimeline, ColoursBoxesAndStillSaysWhatTheyAre) {
  const std::string text = draw_text(one_f_one_b(), {.colour = true});
  EXPECT_THAT(text, HasSubstr("\x1b[48;5;"));
  EXPECT_THAT(text, HasSubstr("F0 \x1b[0m"));
  EXPECT_THAT(text, HasSubstr("\x1b[2m......\x1b[0m"));
  EXPECT_THAT(draw_text(one_f_one_b()), Not(HasSubstr("\x1b")));
}

TEST(TextTimeline, SaysSecondsWithTheirUnit) {
  Timeline timeline = one_f_one_b();
  timeline.time_unit = "s";
  for (auto& rank : timeline.ranks) {
    for (Span& span : rank) span.start *= 1e-3, span.end *= 1e-3;
  }
  EXPECT_THAT(draw_text(timeline), HasSubstr("step time 15 ms"));
  EXPECT_THAT(draw_text(timeline), HasSubstr("10 ms"));
}

TEST(TextTimeline, DrawsNothingForNothing) {
  EXPECT_EQ(draw_text(named("none")), "none: nothing ran\n");
  Timeline zero = named("zero");
  zero.ranks = {{make_span(Kind::kForward, 0, 1, 1)}, {}};
  EXPECT_EQ(draw_text(zero), "zero: nothing ran\n");
}

TEST(TextTimeline, DrawsARankWithoutSpansAsIdle) {
  Timeline timeline = gpipe_timeline(1, 1);
  timeline.ranks.emplace_back();
  EXPECT_EQ(lines_of(draw_text(timeline))[2], "rank 1 |.........|");
}

TEST(TextTimeline, SurvivesOddNumbers) {
  Timeline timeline = gpipe_timeline(1, 2);
  timeline.ranks[0].push_back(make_span(Kind::kForward, 2, 1e307, 1e308));
  timeline.ranks[0].push_back(
      make_span(Kind::kForward, 2, 7, std::numeric_limits<double>::quiet_NaN()));
  timeline.ranks[0].push_back(
      make_span(Kind::kForward, 2, 7, std::numeric_limits<double>::infinity()));
  EXPECT_THAT(draw_text(timeline), HasSubstr("|F0-F1-B1----B0----|"));
  Timeline huge;
  huge.ranks = {{make_span(Kind::kForward, 0, -1e299, 1e299)}};
  EXPECT_THAT(draw_text(huge), HasSubstr("|F0"));
  Timeline tiny;
  tiny.ranks = {{make_span(Kind::kForward, 0, 0, 1e-310)}};
  EXPECT_THAT(draw_text(tiny), HasSubstr("nothing ran"));
}

TEST(TextTimeline, SaysTheVersionOfTheWeightsWhereThereIsRoom) {
  const Timeline timeline = asynchronous_timeline(2);
  const std::string wide = draw_text(timeline, {.width = 200});
  EXPECT_THAT(wide, HasSubstr("pipedream: whole time 10.25, idle"));
  EXPECT_THAT(wide, HasSubstr("B0@0-"));
  EXPECT_THAT(wide, HasSubstr("b1@1-"));  // on rank 1: an odd version in lower case
  EXPECT_THAT(wide, HasSubstr("upper and lower case take turns over versions of the weights"));
  const std::string narrow = draw_text(timeline, {.width = 20});
  EXPECT_THAT(narrow, Not(HasSubstr("@")));
  EXPECT_THAT(draw_text(timeline, {.width = 200, .colour = true}),
              HasSubstr("shades take turns over versions of the weights"));
  EXPECT_THAT(draw_text(gpipe_timeline(2, 2)), Not(HasSubstr("versions")));
}

}  // namespace
}  // namespace pipewright
