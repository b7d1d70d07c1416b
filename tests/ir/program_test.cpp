#include "pipewright/ir/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

TEST(InstructionText, ReadsBackEveryKind) {
  for (const Kind kind : kAllKinds) {
    const Instruction i = is_once_a_step(kind) ? Instruction(kind, Stage{12})
                                               : Instruction(kind, Stage{12}, MicroBatch{345});
    EXPECT_EQ(parse_instruction(to_text(i)), i) << to_text(i);
  }
  EXPECT_EQ(to_text({Kind::kForward, Stage{0}, MicroBatch{3}}), "0F3");
  EXPECT_EQ(to_text({Kind::kSendForward, Stage{1}, MicroBatch{3}}), "1SEND_F3");
  EXPECT_EQ(to_text({Kind::kStep, Stage{2}}), "2STEP");
  const Instruction last(Kind::kRecvBackward, Stage{Instruction::kMaxStage},
                         MicroBatch{Instruction::kMaxMicroBatch});
  EXPECT_EQ(parse_instruction(to_text(last)), last);
}

TEST(InstructionText, SaysWhatIsWrong) {
  EXPECT_THAT(refusal([] { parse_instruction("F3"); }),
              HasSubstr("does not start with a stage number"));
  EXPECT_THAT(refusal([] { parse_instruction("0X3"); }), HasSubstr("names no instruction"));
  EXPECT_THAT(refusal([] { parse_instruction("0F"); }), HasSubstr("has no micro-batch"));
  EXPECT_THAT(refusal([] { parse_instruction("0STEP1"); }), HasSubstr("runs once a step"));
  EXPECT_THAT(refusal([] { parse_instruction("99999999F1"); }), HasSubstr("stage above"));
  EXPECT_THAT(refusal([] { parse_instruction("0F99999999999"); }), HasSubstr("micro-batch above"));
  EXPECT_THAT(refusal([] { parse_instruction("0f3"); }), HasSubstr("names no instruction"));
  EXPECT_THAT(refusal([] { parse_instruction(""); }), HasSubstr("''"));
  EXPECT_THAT(refusal([] { parse_instruction(std::string(1000, '1')); }), HasSubstr("..."));
}

constexpr std::string_view kText =
    "program 1f1b\n"
    "micro_batches 2\n"
    "placement 0 1\n"
    "rank 0: 0F0 0F1 0B0 0B1 0STEP\n"
    "rank 1: 1F0 1B0 1F1 1B1 1STEP\n";

TEST(ProgramText, PrintsAndParsesBack) {
  const Program program = parse_program(kText);
  EXPECT_EQ(to_text(program), kText);
  EXPECT_EQ(program.num_ranks(), 2);
  EXPECT_EQ(program.num_stages(), 2);
  EXPECT_EQ(program.num_chunks(), 1);
  EXPECT_EQ(program.num_instructions(), 10U);
  EXPECT_EQ(program.num_compute_instructions(), 8U);
  EXPECT_FALSE(program.is_lowered());
}

TEST(ProgramText, TakesCommentsAndBlankLines) {
  const Program program =
      parse_program("# mine\n\nmicro_batches 1\r\nforward_only\nplacement 0\nrank 0: 0F0 # one\n");
  EXPECT_TRUE(program.forward_only);
  EXPECT_EQ(program.ranks[0].size(), 1U);
}

TEST(ProgramText, NamesTheLineThatIsWrong) {
  EXPECT_THAT(refusal([] { parse_program(""); }), HasSubstr("no line 'rank 0: ...'"));
  EXPECT_THAT(refusal([] { parse_program("rank 1: 0F0\n"); }),
              HasSubstr("line 1: expected 'rank 0:'"));
  EXPECT_THAT(refusal([] { parse_program("ranks 1\n"); }), HasSubstr("line 1: 'ranks' is none of"));
  EXPECT_THAT(refusal([] { parse_program("micro_batches x\n"); }),
              HasSubstr("line 1: micro_batches"));
  EXPECT_THAT(refusal([] { parse_program("micro_batches 1 2\n"); }),
              HasSubstr("'2' is one word too many"));
  EXPECT_THAT(refusal([] { parse_program("placement 0 -1\n"); }),
              HasSubstr("line 1: rank of a stage"));
  EXPECT_THAT(refusal([] { parse_program("\nrank 0: 0F0 0Q0\n"); }),
              HasSubstr("line 2: instruction 1: [instruction] '0Q0'"));
}

}  // namespace
}  // namespace pipewright
