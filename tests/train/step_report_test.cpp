#include "pipewright/train/step_report.h"

#include <gtest/gtest.h>

namespace pipewright {
namespace {

StepReport report_of(int rank, double started) {
  StepReport report;
  report.loss_sum = rank == 2 ? 7.5 : 0;
  report.weight = rank == 2 ? 12 : 0;
  report.stops = rank == 1 ? 1 : 0;
  report.started = started;
  report.rank_peaks = {0, 0, 0};
  report.rank_peaks[static_cast<std::size_t>(rank)] = 1000 + rank;
  report.stage_peaks = {0, 0, 0};
  report.stage_peaks[static_cast<std::size_t>(rank)] = 100 + rank;
  report.spans = {{0.25, 0.5, 0.125, rank, 3, Kind::kBackward},
                  {0.5, 0.75, 0, rank, -1, Kind::kStep}};
  report.memory = {{0.25, 64}, {0.5, 32}};
  return report;
}

TEST(StepReports, AreReadAsTheyWereWritten) {
  const StepReport report = report_of(1, 1e9 + 0.5);
  const StepReport read = unpack(pack(report));
  EXPECT_EQ(pack(read), pack(report));
  ASSERT_EQ(read.spans.size(), 2U);
  EXPECT_EQ(read.spans[0].kind, Kind::kBackward);
  EXPECT_EQ(read.spans[0].micro_batch, 3);
  EXPECT_EQ(read.spans[1].micro_batch, -1);
  EXPECT_EQ(read.spans[0].link_wait, 0.125);
  EXPECT_EQ(read.rank_peaks, report.rank_peaks);
  EXPECT_EQ(read.memory[1].bytes, 32);
}

TEST(StepReports, OfAllRanksAreJoinedOnOneTimeAxis) {
  Timeline timeline{"1f1b", "s", {{}}, {{}}};
  const StepReport joined =
      join_reports({report_of(0, 100.5), report_of(1, 100), report_of(2, 101)}, &timeline);
  EXPECT_EQ(joined.loss_sum, 7.5);
  EXPECT_EQ(joined.weight, 12);
  EXPECT_EQ(joined.stops, 1);
  EXPECT_EQ(joined.rank_peaks, (std::vector<std::int64_t>{1000, 1001, 1002}));
  EXPECT_EQ(joined.stage_peaks, (std::vector<std::int64_t>{100, 101, 102}));
  ASSERT_EQ(timeline.ranks.size(), 3U);
  EXPECT_EQ(timeline.ranks[0][0].start, 0.75);
  EXPECT_EQ(timeline.ranks[1][0].start, 0.25);
  EXPECT_EQ(timeline.ranks[2][1].end, 1.75);
  EXPECT_EQ(timeline.memory[2][0].time, 1.25);
}

}  // namespace
}  // namespace pipewright
