#include "pipewright/trace/timeline.h"

#include <gtest/gtest.h>

#include <numeric>

#include "pipewright/trace/breakdown.h"
#include "tests/trace/sample.h"

namespace pipewright {
namespace {

double sum_of_parts(const Breakdown& parts) {
  return std::accumulate(
      kBreakdownParts.begin(), kBreakdownParts.end(), 0.0,
      [&](double sum, const BreakdownPart& part) { return sum + parts.*part.value; });
}

TEST(RankTimes, SortsTimeByKind) {
  RankTimes times;
  times.add(make_span(Kind::kForward, 0, 1, 2));
  times.add(make_span(Kind::kRecompute, 0, 2, 4));
  times.add(make_span(Kind::kBackwardInput, 0, 4, 8));
  times.add(make_span(Kind::kBackwardWeight, 0, 8, 16));
  times.add(make_span(Kind::kReduce, -1, 20, 21));
  times.add(make_span(Kind::kStep, -1, 21, 21.5));
  EXPECT_EQ(times.compute, 13);
  EXPECT_EQ(times.recompute, 2);
  EXPECT_EQ(times.reduce, 1);
  EXPECT_EQ(times.update, 0.5);
  EXPECT_EQ(times.busy(), 16.5);
  EXPECT_EQ(times.first_start, 1);
  EXPECT_EQ(times.last_end, 21.5);
  EXPECT_EQ(times.span(), 20.5);
}

TEST(RankTimes, CountsMeasuredSendsAsWaitingForTheLink) {
  RankTimes times;
  times.add(make_span(Kind::kSendForward, 0, 0, 2));
  times.add(make_span(Kind::kRecvBackward, 0, 2, 5));
  EXPECT_EQ(times.link_wait, 5);
  EXPECT_EQ(times.busy(), 0);
}

TEST(StepTimes, OfAnEmptyTimelineAreZero) {
  const StepTimes none{Timeline{}};
  EXPECT_EQ(none.step_time(), 0);
  EXPECT_EQ(none.bubble_fraction(), 0);
  EXPECT_EQ(breakdown(none).total, 0);
}

TEST(StepTimes, LeaveOutTheTimeBeforeTheFirstSpan) {
  Timeline timeline = gpipe_timeline(4, 8);
  for (auto& rank : timeline.ranks) {
    for (Span& span : rank) span.start += 1000, span.end += 1000;
  }
  EXPECT_EQ(StepTimes(timeline).step_time(), 33);
}

TEST(StepTimes, BubbleOfGpipeIsTheTextbooks) {
  const StepTimes times(gpipe_timeline(4, 8));
  EXPECT_EQ(times.step_time(), 33);
  EXPECT_EQ(times.busy(), 4 * 24);
  EXPECT_DOUBLE_EQ(times.bubble_fraction(), 3.0 / 11);
}

TEST(StepTimes, ARankWithoutSpansIsIdle) {
  Timeline timeline = gpipe_timeline(1, 2);
  timeline.ranks.emplace_back();
  const StepTimes times(timeline);
  EXPECT_EQ(times.step_time(), 6);
  EXPECT_DOUBLE_EQ(times.bubble_fraction(), 0.5);
}

TEST(Breakdown, OfABalancedPipelineIsComputeAndBubble) {
  const Breakdown parts = breakdown(StepTimes(gpipe_timeline(4, 8)));
  EXPECT_EQ(parts.total, 4 * 33);
  EXPECT_EQ(parts.compute, 4 * 24);
  EXPECT_EQ(parts.bubble, 4 * 9);
  EXPECT_EQ(parts.imbalance, 0);
}

//     rank 0 |F F F F F F R R . . S|   works 8, idle 2
//     rank 1 |. . F F . . . . . A .|   works 2, idle 8: 3 on the link, 5 of the 6 it works less
TEST(Breakdown, TakesLinkThenImbalanceOutOfIdleTime) {
  Timeline timeline;
  timeline.ranks.resize(2);
  timeline.ranks[0] = {make_span(Kind::kForward, 0, 0, 6), make_span(Kind::kRecompute, 0, 6, 8),
                       make_span(Kind::kStep, -1, 10, 11)};
  timeline.ranks[1] = {make_span(Kind::kForward, 0, 2, 4), make_span(Kind::kReduce, -1, 9, 10)};
  timeline.ranks[1][0].link_wait = 3;
  const Breakdown parts = breakdown(StepTimes(timeline));
  EXPECT_EQ(parts.total, 22);
  EXPECT_EQ(parts.compute, 8);
  EXPECT_EQ(parts.recompute, 2);
  EXPECT_EQ(parts.update, 1);
  EXPECT_EQ(parts.communication, 1 + 3);
  EXPECT_EQ(parts.imbalance, 5);
  EXPECT_EQ(parts.bubble, 2);
  EXPECT_EQ(sum_of_parts(parts), parts.total);
}

TEST(Breakdown, NeverTakesMoreLinkThanThereIsIdleTime) {
  Timeline timeline;
  timeline.ranks = {{make_span(Kind::kForward, 0, 0, 1), make_span(Kind::kForward, 1, 2, 3)}};
  timeline.ranks[0][1].link_wait = 50;
  const Breakdown parts = breakdown(StepTimes(timeline));
  EXPECT_EQ(parts.communication, 1);
  EXPECT_EQ(sum_of_parts(parts), parts.total);
}

TEST(Breakdown, PartsSumToTheTotal) {
  for (const int ranks : {1, 2, 3, 7, 16}) {
    for (const int micro_batches : {1, 5, 32}) {
      Timeline timeline = chunked_timeline(ranks, micro_batches);
      for (auto& rank : timeline.ranks) {
        for (Span& span : rank) span.start *= 0.1, span.end *= 0.1, span.link_wait *= 0.7;
      }
      const Breakdown parts = breakdown(StepTimes(timeline));
      EXPECT_NEAR(sum_of_parts(parts), parts.total, 1e-12 * parts.total);
    }
  }
}

TEST(BreakdownTable, ShowsPercentAndADashForNothing) {
  const std::vector<BreakdownRow> rows = {{"gpipe", breakdown(StepTimes(gpipe_timeline(4, 8)))},
                                          {"nothing", Breakdown{}}};
  EXPECT_EQ(breakdown_table(rows),
            "         compute  recompute  update  communication  imbalance  bubble\n"
            "gpipe      72.7%          -       -              -          -   27.3%\n"
            "nothing        -          -       -              -          -       -\n");
}

}  // namespace
}  // namespace pipewright
