// Versions of the weights: the text form of asynchronous Programs, and what the validator says of
// them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/ir/csv.h"
#include "pipewright/ir/validate.h"
#include "pipewright/ir/walk.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The second piece of pipedream on two ranks, mini-batches of two.
constexpr std::string_view kPiece =
    "program pipedream\n"
    "micro_batches 3\n"
    "keeps 1 2\n"
    "carried 1 0 1\n"
    "open\n"
    "placement 0 1\n"
    "rank 0: 0F1@0 0B0@0 0STEP@1 0F2@1 0B1@0\n"
    "rank 1: 1F1@1 1B1@1 1F2@1 1B2@1 1STEP@2\n";

/// The whole of two mini-batches of one on two ranks.
constexpr std::string_view kWhole =
    "micro_batches 2\n"
    "keeps 2 2\n"
    "placement 0 1\n"
    "rank 0: 0F0@0 0F1@0 0B0@0 0STEP@1 0B1@0 0STEP@2\n"
    "rank 1: 1F0@0 1B0@0 1STEP@1 1F1@1 1B1@1 1STEP@2\n";

std::string verdict(const Program& program) {
  try {
    validate(program);
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "accepted";
}

/// The verdict on a text with one part of it replaced.
std::string verdict_with(std::string_view text, std::string_view part, std::string_view other) {
  std::string changed(text);
  const std::size_t at = changed.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  changed.replace(at, part.size(), other);
  return verdict(parse_program(changed));
}

TEST(VersionText, PrintsAndParsesBack) {
  const Program piece = parse_program(kPiece);
  EXPECT_EQ(to_text(piece), kPiece);
  EXPECT_TRUE(piece.is_asynchronous());
  EXPECT_TRUE(piece.open);
  EXPECT_EQ(piece.carried, (Carried{.micro_batches = 1, .backwards = {0, 1}}));
  EXPECT_EQ(piece.keeps, (std::vector<int>{1, 2}));
  EXPECT_EQ(piece.versions[0], (std::vector<int>{0, 0, 1, 1, 0}));
  EXPECT_EQ(to_text(piece, 0, 2), "0STEP@1");
}

TEST(VersionText, AProgramWithoutVersionsIsSynchronous) {
  EXPECT_FALSE(parse_program("micro_batches 1\nplacement 0\nrank 0: 0F0 0B0\n").is_asynchronous());
  const Program empty = parse_program("micro_batches 0\nkeeps 3\nplacement 0\nrank 0:\n");
  EXPECT_TRUE(empty.is_asynchronous());
  EXPECT_EQ(parse_program(to_text(empty)), empty);
  EXPECT_EQ(verdict(empty), "accepted");
}

TEST(VersionText, NamesWhatIsWrong) {
  EXPECT_THAT(refusal([] { parse_program("rank 0: 0F0@\n"); }), HasSubstr("line 1: version"));
  EXPECT_THAT(refusal([] { parse_program("rank 0: 0F0@x\n"); }), HasSubstr("line 1: version"));
  EXPECT_THAT(refusal([] { parse_program("rank 0: 0F0@-1\n"); }), HasSubstr("line 1: version"));
  EXPECT_THAT(refusal([] { parse_program("keeps\n"); }), HasSubstr("'keeps' names no version"));
  EXPECT_THAT(refusal([] { parse_program("keeps 99999999999\n"); }), HasSubstr("version to keep"));
  EXPECT_THAT(refusal([] { parse_program("carried x\n"); }), HasSubstr("carried micro-batches"));
  EXPECT_THAT(refusal([] { parse_program("carried 1 x\n"); }), HasSubstr("backwards of a stage"));
  EXPECT_THAT(refusal([] { parse_program("open 1\n"); }), HasSubstr("one word too many"));
}

TEST(VersionText, CsvHasNone) {
  const Program whole = parse_program(kWhole);
  const Program back = read_csv(write_csv(whole)).program;
  EXPECT_FALSE(back.is_asynchronous());
  EXPECT_EQ(back.ranks, whole.ranks);
}

TEST(VersionValidator, AcceptsPiecesAndWholes) {
  EXPECT_EQ(verdict(parse_program(kPiece)), "accepted");
  EXPECT_EQ(verdict(parse_program(kWhole)), "accepted");
}

TEST(VersionValidator, MarksTheStepWithItsVersion) {
  EXPECT_THAT(verdict_with(kWhole, "0B1@0", "0B1@1"),
              AllOf(HasSubstr("rank 0, step 4: 0B1@1 must use version 0, as 0F1 does"),
                    HasSubstr("[0B1@1]"), HasSubstr("1STEP@2")));
}

TEST(VersionValidator, ABackwardUsesTheVersionOfItsForward) {
  EXPECT_THAT(verdict_with(kWhole, "0B1@0", "0R1@1 0B1@0"),
              HasSubstr("0R1@1 must use version 0, as 0F1 does"));
  EXPECT_THAT(verdict_with(kPiece, "0B0@0 0STEP@1 0F2@1 0B1@0", "0R0@0 0B0@1 0STEP@2 0F2@2 0B1@0"),
              HasSubstr("0B0@1 must use version 0, as 0R0 does"));
}

TEST(VersionValidator, AVersionIsMadeBeforeItIsUsed) {
  EXPECT_THAT(verdict_with(kWhole, "0F1@0", "0F1@1"),
              HasSubstr("rank 0, step 1: 0F1@1 uses a version that is not made yet: the newest of "
                        "stage 0 is 0 here"));
}

TEST(VersionValidator, AVersionThatIsGoneIsNotUsed) {
  const std::string_view late =
      "micro_batches 1\nkeeps 5 5\nplacement 0 1\n"
      "rank 0: 0F0@4 0B0@4 0STEP@5\nrank 1: 1F0@3 1B0@3 1STEP@5\n";
  EXPECT_THAT(verdict(parse_program(late)),
              HasSubstr("1F0@3 uses a version that is no longer kept: nothing is under way at the "
                        "start, and version 4 is all there is"));
  EXPECT_THAT(verdict_with(kPiece, "1F2@1 1B2@1", "1F2@0 1B2@0"),
              HasSubstr("1F2@0 uses a version that is no longer kept: the micro-batch before it "
                        "used 1"));
  EXPECT_THAT(
      verdict_with(kPiece, "0B0@0 0STEP@1 0F2@1", "0B0@1 0STEP@2 0F2@2"),
      HasSubstr("0B0@1 uses a newer version than the forwards of later micro-batches, which "
                "begin with 0"));
}

TEST(VersionValidator, WorkHasAVersionAndMessagesHaveNone) {
  EXPECT_THAT(verdict_with(kWhole, "0F1@0", "0F1"),
              HasSubstr("0F1 has no version of the weights; write it as in 0F1@0"));
  EXPECT_THAT(verdict(parse_program("micro_batches 1\nkeeps 1 1\nplacement 0 1\n"
                                    "rank 0: 0F0@0 0SEND_F0@0 0RECV_B0 0B0@0 0STEP@1\n"
                                    "rank 1: 1RECV_F0 1F0@0 1B0@0 1SEND_B0 1STEP@1\n")),
              HasSubstr("0SEND_F0@0 is a message and uses no version of the weights"));
  EXPECT_THAT(
      verdict(parse_program("micro_batches 1\nkeeps 1\nplacement 0\nrank 0: 0F0@0 0I0@0 0W0@0\n")),
      HasSubstr("0I0@0 is half a backward; with versions of the weights, write B"));
}

TEST(VersionValidator, AStepMakesTheVersionAfterTheNewest) {
  EXPECT_THAT(verdict_with(kWhole, "0STEP@2", "0STEP@3"),
              HasSubstr("0STEP@3 must make version 2: the newest of stage 0 is 1 here"));
  EXPECT_THAT(verdict_with(kWhole, "1STEP@1", "1STEP@2"),
              HasSubstr("1STEP@2 must make version 1, as the first STEP of the other stages does"));
  EXPECT_THAT(verdict_with(kWhole, "0STEP@1", "0STEP"),
              HasSubstr("0STEP makes no version of the weights; write it as in 0STEP@1"));
  EXPECT_THAT(verdict_with(kWhole, "0STEP@2", "0STEP@2 0STEP@3"),
              HasSubstr("0STEP@3 has no gradients: the stage has done no backward since its last "
                        "update"));
}

TEST(VersionValidator, AnUpdateIsOneOfAllStages) {
  EXPECT_THAT(verdict_with(kWhole, "1B0@0 1STEP@1 1F1@1 1B1@1 1STEP@2", "1B0@0 1F1@0 1B1@0"),
              AllOf(HasSubstr("1STEP@1 is missing after 1B0@0: stage 0 updates there"),
                    HasSubstr("rank 1, step 2")));
  const std::string_view apart =
      "micro_batches 3\nkeeps 0 1\ncarried 1 0 1\nopen\nplacement 0 1\n"
      "rank 0: 0F1@0 0B0@0 0F2@0 0B1@0 0STEP@4\n"
      "rank 1: 1F1@1 1B1@1 1STEP@5 1F2@1 1B2@1\n";
  EXPECT_THAT(verdict(parse_program(apart)),
              HasSubstr("1STEP@5 must make version 4, as stage 0 does after micro-batch 1"));
}

TEST(VersionValidator, ReducesGoWithSteps) {
  EXPECT_THAT(verdict_with(kWhole, "0STEP@1", "0REDUCE@1 0STEP@1"),
              HasSubstr("comes without a REDUCE, while other updates have theirs"));
  EXPECT_THAT(verdict_with(kWhole, "0STEP@1", "0REDUCE@1 0REDUCE@1 0STEP@1"),
              HasSubstr("0REDUCE@1 is a duplicate of rank 0, step 3"));
  EXPECT_THAT(verdict(parse_program("micro_batches 2\nkeeps 1\nplacement 0\n"
                                    "rank 0: 0F0@0 0F1@0 0B0@0 0REDUCE@1 0B1@0 0STEP@1\n")),
              HasSubstr("0B1@0 comes between the stage's REDUCE and its STEP"));
  EXPECT_THAT(verdict(parse_program("micro_batches 1\nkeeps 0\nplacement 0\n"
                                    "rank 0: 0F0@0 0B0@0 0REDUCE@1\n")),
              HasSubstr("0REDUCE@1 has no STEP after it"));
}

TEST(VersionValidator, WhatIsNeededLaterIsKept) {
  EXPECT_THAT(verdict_with(kWhole, "keeps 2 2", "keeps 2 3"),
              HasSubstr("rank 1 keeps versions from 3 on, but the newest of stage 1 is 2"));
  EXPECT_THAT(verdict_with(kPiece, "0F2@1", "0F2@0"),
              HasSubstr("rank 0 keeps versions from 1 on, but 0B2 is left and will use 0"));
}

TEST(OpenPrograms, DoTheFirstBackwardsAndSayWhatTheyLeave) {
  EXPECT_THAT(verdict_with(kPiece, "0F2@1 0B1@0", "0F2@1 0B1@0 0B2@1"), HasSubstr("leaves no"));
  EXPECT_THAT(verdict_with(kPiece, "1F1@1 1B1@1 1F2@1 1B2@1 1STEP@2", "1F1@1 1F2@1"),
              HasSubstr("0B1 needs 1B1, which this program leaves to the next one"));
  EXPECT_THAT(verdict_with(kPiece, "0F2@1 0B1@0", "0F2@1 0R2@1 0B1@0"),
              HasSubstr("0R2 belongs to 0B2, which this program leaves to the next one"));
  // Leaving one more is as good, where its version is kept.
  EXPECT_EQ(verdict(parse_program("micro_batches 2\nkeeps 0 0\ncarried 1 0 1\nopen\nplacement 0 1\n"
                                  "rank 0: 0F1@0\nrank 1: 1F1@0\n")),
            "accepted");
}

TEST(OpenPrograms, ReceiveNothingThatIsNotSent) {
  const std::string_view piece =
      "micro_batches 2\nkeeps 0 0\nopen\nplacement 0 1\n"
      "rank 0: 0F0@0 0SEND_F0 0F1@0 0SEND_F1 0RECV_B0 0B0@0 0RECV_B1\n"
      "rank 1: 1RECV_F0 1F0@0 1B0@0 1SEND_B0 1RECV_F1 1F1@0 1B1@0 1SEND_B1\n";
  EXPECT_THAT(verdict_with(piece, " 1B1@0 1SEND_B1", ""),
              HasSubstr("0RECV_B1 belongs to 1B1, which this program leaves to the next one"));
  EXPECT_THAT(verdict_with(piece, " 1B1@0", ""),
              HasSubstr("belongs to 1B1, which this program leaves to the next one"));
}

TEST(CarriedMicroBatches, AreNotDoneTwice) {
  EXPECT_THAT(verdict_with(kPiece, "0F1@0", "0F0@0 0F1@0"),
              HasSubstr("0F0 is a duplicate: it was done before this program, which goes on with 1 "
                        "micro-batches under way"));
  EXPECT_THAT(verdict_with(kPiece, "1F1@1", "1B0@1 1F1@1"), HasSubstr("1B0 is a duplicate"));
  EXPECT_THAT(verdict_with(kPiece, "0F1@0 0B0@0", "0B0@0 0F1@0 0B0@0"),
              HasSubstr("0B0 is a duplicate of rank 0, step 0"));
}

TEST(CarriedMicroBatches, AreRefusedWhereTheyMakeNoSense) {
  EXPECT_THAT(verdict_with(kPiece, "carried 1 0 1", "carried 1 0"),
              HasSubstr("1 micro-batches are carried with the backwards of 1 stages"));
  EXPECT_THAT(verdict_with(kPiece, "carried 1 0 1", "carried 3 0 1"),
              HasSubstr("3 micro-batches cannot be carried over 2 stages; at most 2 can"));
  EXPECT_THAT(verdict_with(kPiece, "carried 1 0 1", "carried 1 0 2"),
              HasSubstr("backwards 0 2 of 1 carried micro-batches"));
  EXPECT_THAT(verdict_with(kPiece, "carried 1 0 1", "carried 1 1 1"), HasSubstr("from 0 to"));
  EXPECT_THAT(verdict_with(kPiece, "micro_batches 3", "micro_batches 0"), HasSubstr("no micro-"));
  EXPECT_THAT(verdict_with(kPiece, "keeps 1 2", "keeps 1"),
              HasSubstr("1 versions to keep for 2 ranks"));
  EXPECT_THAT(verdict(parse_program("micro_batches 1\nopen\nplacement 0\nrank 0: 0F0\n")),
              HasSubstr("a program without versions of the weights cannot carry micro-batches"));
  EXPECT_THAT(verdict(parse_program(
                  "micro_batches 1\nforward_only\nkeeps 0\nplacement 0\nrank 0: 0F0@0\n")),
              HasSubstr("a forward-only program has no versions"));
  EXPECT_THAT(verdict_with(kPiece, " 1F2@1 1B2@1 1STEP@2", ""), HasSubstr("1F2 is missing"));
  EXPECT_THAT(verdict_with(kPiece, "placement 0 1", "placement 0 0"),
              HasSubstr("with versions of the weights, a rank has one stage"));
}

TEST(CarriedMicroBatches, VersionsAreAsLongAsTheLists) {
  Program program = parse_program(kPiece);
  program.versions[1].pop_back();
  EXPECT_THAT(verdict(program), HasSubstr("rank 1 has 4 versions for 5 instructions"));
  program.versions.pop_back();
  EXPECT_THAT(verdict(program), HasSubstr("1 lists of versions for 2 ranks"));
  EXPECT_THROW(Walk(program, Sends::kReturnAtOnce, WalkOrder::kRounds), ScheduleError);
}

TEST(CarriedMicroBatches, AFewBytesCannotAskForMuchMemory) {
  EXPECT_THAT(verdict(parse_program("micro_batches 1000000000\nkeeps 0 0\ncarried 999999999 0 0\n"
                                    "placement 0 1\nrank 0: 0F0@0\nrank 1:\n")),
              HasSubstr("cannot be carried over 2 stages"));
}

TEST(ValidateVersions, NamesWhatAnOpenProgramLeavesTooEarly) {
  EXPECT_THAT(verdict(parse_program("micro_batches 3\nkeeps 1 2\ncarried 1 0 1\nopen\n"
                                    "placement 0 1\n"
                                    "rank 0: 0F1@0 0B0@0 0STEP@1 0F2@1 0W1@0\n"
                                    "rank 1: 1F1@1 1B1@1 1F2@1 1B2@1 1STEP@2\n")),
              HasSubstr("0W1 needs 0I1, which no rank has"));
}

}  // namespace
}  // namespace pipewright
