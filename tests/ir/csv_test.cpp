#include "pipewright/ir/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_csv(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

// torch.distributed.pipelining's own zero-bubble schedule of 2 ranks, 2 chunks, 8 micro-batches.
constexpr std::string_view kTorchZeroBubble =
    "0F0,0F1,2F0,,2F1,2I0,2W0,0F2,2I1,2W1,0F3,0I0,0W0,2F2,0I1,0W1,2F3,2I2,2W2,0F4,2I3,2W3,0F5,0I2,"
    "0W2,2F4,0I3,"
    "0W3,2F5,2I4,2W4,0F6,2I5,2W5,0F7,0I4,0W4,2F6,0I5,0W5,2F7,2I6,2W6,2I7,2W7,0I6,0W6,0I7,0W7\n"
    ",1F0,1F1,3F0,3I0,3F1,3I1,3W0,1F2,1I0,3W1,1F3,1I1,1W0,3F2,3I2,1W1,3F3,3I3,3W2,1F4,1I2,3W3,1F5,"
    "1I3,1W2,3F4,"
    "3I4,1W3,3F5,3I5,3W4,1F6,1I4,3W5,1F7,1I5,1W4,3F6,3I6,1W5,3F7,3I7,3W6,1I6,3W7,1I7,1W6,1W7\n";

TEST(Csv, ReadsTorchsZeroBubbleSchedule) {
  const CsvProgram csv = read_csv(kTorchZeroBubble);
  EXPECT_EQ(csv.remarks, "");
  EXPECT_EQ(csv.program.placement, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(csv.program.num_micro_batches, 8);
  EXPECT_FALSE(csv.program.forward_only);
  EXPECT_NO_THROW(validate(csv.program));
  EXPECT_NO_THROW(validate(lower_sends(csv.program)));
}

TEST(Csv, IdlesWhereARankWaits) {
  const Program program = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2});
  EXPECT_EQ(write_csv(program), "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n");
}

TEST(Csv, WritesALoweredProgramWithoutGaps) {
  const Program program =
      lower_sends(make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2}));
  EXPECT_EQ(write_csv(program),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(Csv, CallsReduceAsTorchDoes) {
  const Program program =
      lower_reduce(make_schedule({.name = "1f1b", .ranks = 1, .micro_batches = 1}));
  EXPECT_EQ(write_csv(program), "0F0,0B0,0REDUCE_GRAD\n");
  EXPECT_EQ(read_csv("0F0,0B0,0REDUCE_GRAD\n").program.ranks, program.ranks);
}

TEST(Csv, CountsWhatHasNoCounterpart) {
  const CsvProgram csv = read_csv("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\r\n");
  EXPECT_THAT(csv.remarks, testing::AllOf(HasSubstr("1 UNSHARD"), HasSubstr("1 RESHARD"),
                                          HasSubstr("1 WAIT_REDUCE_GRAD")));
  EXPECT_EQ(csv.program.num_instructions(), 3U);
}

TEST(Csv, TakesAnOverlappedPairApart) {
  const CsvProgram csv = read_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
  EXPECT_THAT(csv.remarks, HasSubstr("1 OVERLAP_F_B"));
  EXPECT_NO_THROW(validate(csv.program));
}

TEST(Csv, TakesForwardsAloneForInference) {
  EXPECT_TRUE(read_csv("0F0,0F1\n,1F0,1F1\n").program.forward_only);
}

TEST(Csv, SaysWhereItIsNoSchedule) {
  EXPECT_THAT(refusal(""), HasSubstr("no action was found"));
  EXPECT_THAT(refusal("\n,,\n"), HasSubstr("no action was found"));
  EXPECT_THAT(refusal("name,age\nbob,3\n"), HasSubstr("row 1, cell 1: [instruction] 'name'"));
  EXPECT_THAT(refusal("0F0,0F1\n1F0,x\n"), HasSubstr("row 2, cell 2"));
  EXPECT_THAT(refusal("0F0,700B0\n"), HasSubstr("stage 700 occurs, but there are only 2 actions"));
  EXPECT_THAT(refusal("0F0,0B1000000000\n"), HasSubstr("micro-batch 1000000000 occurs"));
  EXPECT_THAT(refusal("(0F0;0B0)OVERLAP,0F1\n"), HasSubstr("row 1, cell 1"));
}

TEST(Csv, RefusesToWriteWhatCannotRun) {
  EXPECT_THROW(write_csv(read_csv("0B0,0F0\n").program), ScheduleError);
}

}  // namespace
}  // namespace pipewright
