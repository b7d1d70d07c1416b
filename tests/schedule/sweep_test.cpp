// What holds for every schedule, over all ranks and micro-batches from 1 to 12 and chunks from 1
// to 4.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "pipewright/base/error.h"
#include "pipewright/ir/csv.h"
#include "pipewright/ir/receives.h"
#include "pipewright/ir/validate.h"
#include "pipewright/ir/walk.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

class EverySchedule : public testing::TestWithParam<ScheduleInfo> {
 protected:
  /// Calls `check` with the Program of every size there is.
  template <typename Check>
  void sweep(Check check) const {
    const ScheduleInfo& info = GetParam();
    for (int ranks = 1; ranks <= 12; ++ranks) {
      for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        for (int chunks = info.least_chunks; chunks <= std::min(4, info.most_chunks); ++chunks) {
          SCOPED_TRACE(testing::Message()
                       << info.name << " K=" << ranks << " M=" << micro_batches << " V=" << chunks);
          check(make_schedule({.name = std::string(info.name),
                               .ranks = ranks,
                               .micro_batches = micro_batches,
                               .chunks = chunks}));
        }
      }
    }
  }
};

TEST_P(EverySchedule, IsValidPlainAndLowered) {
  sweep([&](const Program& program) {
    EXPECT_NO_THROW(validate(program));
    EXPECT_NO_THROW(validate(lower_sends(program)));
  });
}

TEST_P(EverySchedule, IsValidWithAllPasses) {
  if (GetParam().forward_only) return;
  sweep([&](const Program& program) {
    for (const auto pass : {RecomputePass::kAll, RecomputePass::kExceptLast}) {
      EXPECT_NO_THROW(
          validate(lower_step(lower_reduce(lower_sends(lower_recompute(program, pass))))));
    }
  });
}

TEST_P(EverySchedule, SurvivesTextAndCsv) {
  sweep([&](const Program& program) {
    for (const Program& p : {program, lower_sends(program)}) {
      EXPECT_EQ(parse_program(to_text(p)), p);
      Program back = read_csv(write_csv(p)).program;
      back.schedule = p.schedule;
      back.versions = p.versions;  // PyTorch's CSV has none
      back.keeps = p.keeps;
      EXPECT_EQ(back, p);
    }
  });
}

TEST_P(EverySchedule, HasTheWorkItSaysAndOnlyThat) {
  sweep([&](const Program& program) {
    const auto cells = static_cast<std::size_t>(program.num_stages() * program.num_micro_batches);
    const std::size_t kinds = program.forward_only ? 1 : (GetParam().splits_backward ? 3 : 2);
    EXPECT_EQ(program.num_compute_instructions(), kinds * cells);
    EXPECT_EQ(program.num_stages() % program.num_ranks(), 0);
    const std::size_t steps = program.is_asynchronous()
                                  ? *std::max_element(program.keeps.begin(), program.keeps.end())
                                  : 0;
    for (const auto& list : program.ranks)
      EXPECT_EQ(list.size(), kinds * cells / program.ranks.size() + steps);
  });
}

TEST_P(EverySchedule, AddsASendAndAReceiveForEveryTensorThatChangesRank) {
  sweep([&](const Program& program) {
    std::size_t crossings = 0;
    for (std::size_t stage = 0; stage + 1 < program.placement.size(); ++stage) {
      if (program.placement[stage] != program.placement[stage + 1]) ++crossings;
    }
    const std::size_t directions = program.forward_only ? 1 : 2;
    const auto messages =
        2 * directions * crossings * static_cast<std::size_t>(program.num_micro_batches);
    EXPECT_EQ(lower_sends(program).num_instructions(), program.num_instructions() + messages);
  });
}

/// By what is sent: the round of a walk in which it is made.
std::map<std::tuple<Kind, int, int>, std::int64_t> rounds_of(const Program& program) {
  std::map<std::tuple<Kind, int, int>, std::int64_t> rounds;
  Walk walk(program, Sends::kReturnAtOnce, WalkOrder::kRounds);
  while (const auto visit = walk.next()) {
    const Instruction i = visit->instruction;
    const Kind kind = i.kind() == Kind::kBackwardInput ? Kind::kBackward : i.kind();
    if (is_compute(kind)) rounds[{kind, i.stage(), i.micro_batch()}] = visit->round;
  }
  return rounds;
}

TEST_P(EverySchedule, AsksForATensorBeforeTheInstructionThatRunsWhileItIsMade) {
  sweep([&](const Program& program) {
    const auto rounds = rounds_of(program);
    const auto round_of = [&](Instruction i) {
      const Kind kind = i.kind() == Kind::kBackwardInput ? Kind::kBackward : i.kind();
      return rounds.at({kind, i.stage(), i.micro_batch()});
    };
    const Program lowered = lower_sends(program);
    for (int rank = 0; rank < program.num_ranks(); ++rank) {
      const auto& list = lowered.ranks[static_cast<std::size_t>(rank)];
      std::vector<Instruction> others, others_listed;
      std::int64_t last_round = -1;
      std::size_t receives = 0;
      for (const std::size_t k : early_receives(lowered, rank)) {
        const Instruction i = list[k];
        if (is_recv(i.kind())) {
          const bool forward = i.kind() == Kind::kRecvForward;
          const auto made = rounds.at({forward ? Kind::kForward : Kind::kBackward,
                                       i.stage() + (forward ? -1 : 1), i.micro_batch()});
          EXPECT_LT(last_round, made) << to_text(i) << " of rank " << rank;
          ++receives;
          continue;
        }
        others.push_back(i);
        if (is_compute(i.kind())) last_round = round_of(i);
      }
      for (const Instruction i : list) {
        if (!is_recv(i.kind())) others_listed.push_back(i);
      }
      EXPECT_EQ(others, others_listed);
      EXPECT_EQ(receives + others.size(), list.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, EverySchedule, testing::ValuesIn(all_schedules()),
                         [](const auto& test) {
                           std::string name(test.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return "s_" + name;
                         });

TEST(Lowering, GivesTheKnownExample) {
  const Program lowered = lower_sends(read_csv("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n").program);
  EXPECT_EQ(write_csv(lowered),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
}

TEST(Lowering, RecomputesAllOrAllButTheLast) {
  const Program program = make_schedule({.name = "gpipe", .ranks = 1, .micro_batches = 2});
  EXPECT_EQ(write_csv(lower_recompute(program, RecomputePass::kAll)), "0F0,0F1,0R0,0B0,0R1,0B1\n");
  EXPECT_EQ(write_csv(lower_recompute(program, RecomputePass::kExceptLast)),
            "0F0,0F1,0R0,0B0,0B1\n");
}

TEST(Lowering, ReducesAStageAsSoonAsItsGradientsAreThere) {
  const Program program =
      make_schedule({.name = "interleaved-1f1b", .ranks = 1, .micro_batches = 1});
  EXPECT_EQ(write_csv(lower_step(lower_reduce(program))),
            "0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,0STEP,1STEP\n");
}

TEST(Lowering, RefusesToDoItTwiceOrWhereItCannot) {
  const Program program = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 2});
  EXPECT_THROW(lower_sends(lower_sends(program)), InvalidArgument);
  EXPECT_THROW(lower_sends(read_csv("0B0,0F0\n").program), ScheduleError);
  EXPECT_THROW(lower_step(make_schedule({.name = "forward-only"})), InvalidArgument);
}

std::string refusal(const ScheduleSpec& spec) {
  try {
    make_schedule(spec);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Schedules, RefuseSizesInOneClearLine) {
  using testing::HasSubstr;
  EXPECT_THAT(
      refusal({.name = "2f2b"}),
      HasSubstr("'2f2b' is no schedule; there are gpipe, 1f1b, eager-1f1b, interleaved-1f1b, "
                "zb-h1, zb-h2, zb-v, pipedream, pipedream-2bw, eager-pipedream, "
                "eager-pipedream-2bw, forward-only"));
  EXPECT_THAT(refusal({.name = "1f1b", .ranks = 0}),
              HasSubstr("cannot run on 0 ranks; use --ranks 1 or more"));
  EXPECT_THAT(refusal({.name = "1f1b", .micro_batches = -2}),
              HasSubstr("cannot run -2 micro-batches"));
  EXPECT_THAT(refusal({.name = "1f1b", .chunks = 2}),
              HasSubstr("1f1b runs exactly 1 chunk a rank, not 2; interleaved-1f1b runs several"));
  EXPECT_THAT(refusal({.name = "zb-v", .chunks = 3}),
              HasSubstr("zb-v runs exactly 2 chunks a rank, not 3"));
  EXPECT_THAT(refusal({.name = "interleaved-1f1b", .chunks = -1}),
              HasSubstr("runs 1 to 1024 chunks a rank"));
  EXPECT_THAT(refusal({.name = "1f1b", .ranks = 1 << 20, .micro_batches = 1 << 20}),
              HasSubstr("are more than"));
}

TEST(OneFOneB, LastRankAlternates) {
  const Program program = make_schedule({.name = "1f1b", .ranks = 4, .micro_batches = 6});
  const auto& last = program.ranks.back();
  for (std::size_t step = 0; step < last.size(); ++step) {
    EXPECT_EQ(last[step].kind(), step % 2 == 0 ? Kind::kForward : Kind::kBackward);
    EXPECT_EQ(last[step].micro_batch(), static_cast<int>(step / 2));
  }
}

TEST(ZbV, PlacesItsStagesInAV) {
  EXPECT_EQ(make_schedule({.name = "zb-v", .ranks = 3, .micro_batches = 1}).placement,
            (std::vector<int>{0, 1, 2, 2, 1, 0}));
}

TEST(Interleaved, IsOneFOneBWithOneChunk) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      EXPECT_EQ(
          make_schedule({.name = "interleaved-1f1b",
                         .ranks = ranks,
                         .micro_batches = micro_batches,
                         .chunks = 1})
              .ranks,
          make_schedule({.name = "1f1b", .ranks = ranks, .micro_batches = micro_batches}).ranks);
    }
  }
}

}  // namespace
}  // namespace pipewright
