// Mutations of valid Programs: the validator must agree with the naive check on each, and must
// catch every one that drops, doubles or displaces work.

#include <gtest/gtest.h>

#include <random>

#include "pipewright/base/error.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "tests/ir/naive_check.h"

namespace pipewright {
namespace {

bool accepts(const Program& program) {
  try {
    validate(program);
  } catch (const ScheduleError&) {
    return false;
  }
  return true;
}

std::vector<Program> subjects() {
  std::vector<Program> programs;
  for (const ScheduleInfo& info : all_schedules()) {
    for (const auto& [ranks, micro_batches] : {std::pair{1, 1}, {1, 3}, {2, 2}, {2, 3}, {3, 2}}) {
      const Program plain = make_schedule(
          {.name = std::string(info.name), .ranks = ranks, .micro_batches = micro_batches});
      programs.push_back(plain);
      programs.push_back(lower_sends(plain));
      if (plain.forward_only) continue;
      programs.push_back(lower_step(
          lower_reduce(lower_sends(lower_recompute(plain, RecomputePass::kExceptLast)))));
    }
  }
  return programs;
}

/// Calls `check` with the program for every place in it.
template <typename Check>
void for_every_place(const Program& program, Check check) {
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) check(rank, step);
  }
}

auto at(std::vector<Instruction>& list, std::size_t step) {
  return list.begin() + static_cast<std::ptrdiff_t>(step);
}

TEST(Mutation, TheSubjectsAreValid) {
  for (const Program& program : subjects()) {
    EXPECT_TRUE(accepts(program)) << to_text(program);
    EXPECT_TRUE(NaiveCheck::accepts(program)) << to_text(program);
  }
}

TEST(Mutation, EveryDropIsCaught) {
  for (const Program& program : subjects()) {
    for_every_place(program, [&](std::size_t rank, std::size_t step) {
      // Without its R a micro-batch is kept instead of recomputed: a valid Program.
      const Kind kind = program.ranks[rank][step].kind();
      if (kind == Kind::kRecompute) return;
      // A single stage without its REDUCE or STEP is a step that has none.
      if (is_once_a_step(kind) && program.num_stages() == 1) return;
      Program mutant = program;
      mutant.ranks[rank].erase(at(mutant.ranks[rank], step));
      EXPECT_FALSE(accepts(mutant)) << to_text(mutant);
    });
  }
}

TEST(Mutation, EveryDuplicateIsCaught) {
  for (const Program& program : subjects()) {
    for_every_place(program, [&](std::size_t rank, std::size_t step) {
      const Instruction copy = program.ranks[rank][step];
      for (std::size_t to = 0; to <= program.ranks[rank].size(); ++to) {
        Program mutant = program;
        mutant.ranks[rank].insert(at(mutant.ranks[rank], to), copy);
        EXPECT_FALSE(accepts(mutant)) << to_text(mutant);
      }
    });
  }
}

TEST(Mutation, EveryMoveToAnotherRankIsCaught) {
  for (const Program& program : subjects()) {
    for_every_place(program, [&](std::size_t rank, std::size_t step) {
      for (std::size_t to = 0; to < program.ranks.size(); ++to) {
        if (to == rank) continue;
        Program mutant = program;
        mutant.ranks[to].push_back(mutant.ranks[rank][step]);
        mutant.ranks[rank].erase(at(mutant.ranks[rank], step));
        EXPECT_FALSE(accepts(mutant)) << to_text(mutant);
      }
    });
  }
}

TEST(Mutation, SwapsAndMovesAreJudgedAsTheDefinitionSays) {
  int caught = 0;
  int harmless = 0;
  for (const Program& program : subjects()) {
    for_every_place(program, [&](std::size_t rank, std::size_t step) {
      for (std::size_t to = 0; to < program.ranks[rank].size(); ++to) {
        if (to == step) continue;
        Program swapped = program;
        std::swap(swapped.ranks[rank][step], swapped.ranks[rank][to]);
        Program moved = program;
        auto& list = moved.ranks[rank];
        const Instruction taken = list[step];
        list.erase(at(list, step));
        list.insert(at(list, to), taken);
        for (const Program& mutant : {swapped, moved}) {
          const bool valid = NaiveCheck::accepts(mutant);
          ASSERT_EQ(accepts(mutant), valid) << to_text(mutant);
          ++(valid ? harmless : caught);
        }
      }
    });
  }
  EXPECT_GT(caught, 10'000);  // of both sorts there are many, or the test would show little
  EXPECT_GT(harmless, 1'000);
}

TEST(Mutation, SeveralAtOnceAreJudgedAsTheDefinitionSays) {
  std::mt19937 random(20260101);
  const auto programs = subjects();
  int valid_ones = 0;
  for (int round = 0; round < 5'000; ++round) {
    Program mutant = programs[random() % programs.size()];
    for (int i = 0; i < 2; ++i) {
      auto& list = mutant.ranks[random() % mutant.ranks.size()];
      if (list.size() < 2) continue;
      const std::size_t step = random() % (list.size() - 1);
      std::swap(list[step], list[step + 1]);
    }
    const bool valid = NaiveCheck::accepts(mutant);
    ASSERT_EQ(accepts(mutant), valid) << to_text(mutant);
    valid_ones += valid ? 1 : 0;
  }
  EXPECT_GT(valid_ones, 100);
  EXPECT_LT(valid_ones, 4'900);
}

}  // namespace
}  // namespace pipewright
