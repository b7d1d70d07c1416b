#include "pipewright/ir/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/ir/csv.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string verdict(const Program& program) {
  try {
    validate(program);
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "accepted";
}

std::string verdict_on(std::string_view csv) { return verdict(read_csv(csv).program); }

std::string verdict_on_text(std::string_view text) { return verdict(parse_program(text)); }

TEST(Validator, AcceptsPlainOneFOneB) {
  EXPECT_EQ(verdict_on("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"),
            "accepted");
}

TEST(Validator, ShowsTheGridWithTheStepMarked) {
  const std::string text = verdict_on("0F0,0F1,0B0,0B1\n1F0,1F0,1B0,1F1,1B1\n");
  EXPECT_THAT(text, HasSubstr("[validate] rank 1, step 1: 1F0 is a duplicate of rank 1, step 0\n"));
  EXPECT_THAT(text, HasSubstr("step 0"));
  EXPECT_THAT(text, HasSubstr("rank 1     1F0     [1F0]     1B0"));
}

TEST(Validator, NamesWhatIsMissing) {
  EXPECT_THAT(verdict_on("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"),
              AllOf(HasSubstr("0B1 is missing (backward of micro-batch 1 on stage 0)"),
                    HasSubstr("[missing]")));
  EXPECT_THAT(verdict_on("0F0,0F1,0I0,0I1,0W1\n"), HasSubstr("0W0 is missing"));
  EXPECT_THAT(verdict_on("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n"),
              HasSubstr("1RECV_F0 is missing"));
  EXPECT_THAT(verdict_on("0F0,0B0\n2F0,2B0\n"), HasSubstr("stage 1 is missing"));
}

TEST(Validator, NamesTheWrongRank) {
  // In a CSV a stage belongs to the rank that has it first.
  EXPECT_THAT(verdict_on("0F0,0F1,1B0,0B0,0B1\n1F0,1F1,1B1\n"),
              HasSubstr("rank 1, step 0: 1F0 is on the wrong rank: stage 1 belongs to rank 0"));
  EXPECT_THAT(verdict_on_text("micro_batches 1\nplacement 0 1\nrank 0: 0F0 1B0 0B0\nrank 1: 1F0\n"),
              HasSubstr("rank 0, step 1: 1B0 is on the wrong rank: stage 1 belongs to rank 1"));
}

TEST(Validator, SaysThatAnInstructionWaitsForItsOwnRank) {
  EXPECT_THAT(verdict_on("0B0,0F0\n"), HasSubstr("rank 0, step 0: 0B0 waits for itself: it needs "
                                                 "0F0, which the same rank has only at step 1"));
  EXPECT_THAT(verdict_on("0F0,0W0,0I0\n"), HasSubstr("0W0 waits for itself: it needs 0I0"));
}

TEST(Validator, ShowsACycleOverRanks) {
  // Stage 1 wants micro-batch 1 first, stage 0 sends it only after the backward of micro-batch 0.
  const std::string text = verdict_on("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n");
  EXPECT_THAT(text, AllOf(HasSubstr("waits for itself"),
                          HasSubstr("rank 0 at step 1 (0B0) waits for 1B0 of rank 1"),
                          HasSubstr("rank 1 at step 0 (1F1) waits for 0F1 of rank 0")));
}

TEST(Validator, FindsADeadlockThatOnlyBlockingSendsHave) {
  // Both ranks send first: right with sends that return at once, stuck where they block.
  const std::string csv =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0F2,0SEND_F2,0RECV_B1,0B1,0RECV_B2,0B2\n"
      "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1RECV_F2,1F2,1B2,1SEND_B2\n";
  EXPECT_THAT(verdict_on(csv),
              AllOf(HasSubstr("waits for itself where a send blocks until it is received"),
                    HasSubstr("0SEND_F2) waits for 1RECV_F2 of rank 1"),
                    HasSubstr("1SEND_B1) waits for 0RECV_B1 of rank 0")));
}

TEST(Validator, WantsBackwardsInIncreasingOrder) {
  EXPECT_THAT(verdict_on("0F0,0F1,0B1,0B0\n"), HasSubstr("0B0 comes after micro-batch 1"));
  EXPECT_THAT(verdict_on("0F0,0F1,0I0,0I1,0W1,0W0\n"), HasSubstr("0W0 comes after micro-batch 1"));
}

TEST(Validator, TakesAnyOrderOfBackwardsWhereThatIsAskedFor) {
  // The order of torch.distributed.pipelining's LoopedBFS.
  const Program program = read_csv("0F0,0F1,0B1,0B0\n").program;
  EXPECT_NO_THROW(validate(program, BackwardOrder::kAny));
  EXPECT_THROW(validate(read_csv("0F0,0F1,0B1,0B1\n").program, BackwardOrder::kAny), ScheduleError);
}

TEST(Validator, RefusesHalfAndWholeBackwardTogether) {
  EXPECT_THAT(verdict_on("0F0,0B0,0I0,0W0\n"), HasSubstr("doubles a backward"));
}

TEST(Validator, RefusesMessagesThatGoNowhere) {
  EXPECT_THAT(verdict_on("0F0,0SEND_F0,0B0\n"),
              HasSubstr("0SEND_F0 has no partner: there is no stage beyond 0"));
  EXPECT_THAT(verdict_on("0F0,0SEND_F0,1F0,1B0,0B0\n"),
              HasSubstr("stages 0 and 1 are on the same rank"));
  EXPECT_THAT(verdict_on("0RECV_F0,0F0,0B0\n"), HasSubstr("0RECV_F0 has no partner"));
}

TEST(Validator, KnowsWhereRecomputeReduceAndStepBelong) {
  EXPECT_EQ(verdict_on("0F0,0R0,0B0,0REDUCE,0STEP\n"), "accepted");
  EXPECT_THAT(verdict_on("0F0,0B0,0R0\n"), HasSubstr("0R0 comes after the backward it is for"));
  EXPECT_THAT(verdict_on("0R0,0F0,0B0\n"), HasSubstr("0R0 waits for itself: it needs 0F0"));
  EXPECT_THAT(verdict_on("0F0,0STEP,0B0\n"),
              HasSubstr("0STEP comes after 0 of the stage's 1 backwards"));
  EXPECT_THAT(verdict_on("0F0,0I0,0REDUCE,0W0\n"),
              HasSubstr("0REDUCE comes after 0 of the stage's 1"));
  EXPECT_THAT(verdict_on("0F0,0B0,0STEP,0REDUCE\n"),
              HasSubstr("0REDUCE comes after the stage's STEP"));
  EXPECT_THAT(verdict_on("0F0,0B0,0STEP,0STEP\n"), HasSubstr("0STEP is a duplicate"));
  EXPECT_THAT(verdict_on("0F0,0B0,0STEP\n1F0,1B0\n"),
              HasSubstr("1STEP is missing, while 1 other stages have"));
  EXPECT_THAT(verdict_on_text("micro_batches 1\nforward_only\nplacement 0\nrank 0: 0F0 0STEP\n"),
              HasSubstr("forward-only"));
  EXPECT_THAT(verdict_on_text("micro_batches 1\nforward_only\nplacement 0\nrank 0: 0F0 0B0\n"),
              HasSubstr("0B0 is a backward in a forward-only program"));
}

TEST(Validator, RefusesShapesThatAreNoProgram) {
  EXPECT_THAT(verdict(Program{}), HasSubstr("no ranks"));
  EXPECT_THAT(verdict_on_text("rank 0: 0F0\n"), HasSubstr("no stages"));
  EXPECT_THAT(verdict_on_text("placement 0\nrank 0: 0F0\n"), HasSubstr("no micro-batches"));
  EXPECT_THAT(verdict_on_text("micro_batches 1\nplacement 3\nrank 0: 0F0\n"),
              HasSubstr("placed on rank 3"));
  EXPECT_THAT(verdict_on_text("micro_batches 1\nplacement 0\nrank 0: 7F0\n"),
              HasSubstr("the stages are 0 to 0"));
  EXPECT_THAT(verdict_on_text("micro_batches 1\nplacement 0\nrank 0: 0F7\n"),
              HasSubstr("they are 0 to 0"));
}

TEST(Validator, NamesTheMissingOneOfABillionWithoutMemoryForThem) {
  EXPECT_THAT(verdict_on_text("micro_batches 1000000000\nplacement 0 0 0\nrank 0: 0F0 0F1 0F3\n"),
              HasSubstr("0F2 is missing"));
}

TEST(Grid, ShowsOnlyTheNeighbourhoodOfALargeProgram) {
  Program program;
  program.num_micro_batches = 100;
  for (int rank = 0; rank < 40; ++rank) {
    program.placement.push_back(rank);
    program.ranks.emplace_back();
    for (int m = 0; m < 100; ++m) {
      program.ranks.back().emplace_back(Kind::kForward, Stage{rank},
                                        MicroBatch{m == 50 && rank == 20 ? 49 : m});
    }
  }
  const std::string text = verdict(program);
  EXPECT_THAT(text, AllOf(HasSubstr("[20F49]"), HasSubstr("12 ranks before"),
                          HasSubstr("12 ranks after"), HasSubstr("step 55"), HasSubstr("...")));
  EXPECT_LT(text.size(), 6000U);
}

}  // namespace
}  // namespace pipewright
