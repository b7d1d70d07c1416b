// Mutations of valid Programs: the validator must agree with the naive check on each, and must
// catch every one that drops, doubles or displaces work.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pipewright/base/error.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/continuing.h"
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

/// Pieces of asynchronous schedules, such that go on from others and leave work among them, and
/// whole ones.
void add_asynchronous(std::vector<Program>* programs) {
  for (const ContinuingSpec& spec : {ContinuingSpec{.name = "pipedream", .ranks = 2},
                                     {.name = "pipedream", .ranks = 3},
                                     {.name = "pipedream", .ranks = 3, .vertical_sync = true},
                                     {.name = "pipedream-2bw", .ranks = 2},
                                     {.name = "eager-pipedream", .ranks = 2}}) {
    ContinuingSchedule schedule(spec);
    for (int i = 0; i < 3; ++i) programs->push_back(schedule.next(2, true));
    programs->push_back(schedule.drain());
    const std::size_t size = programs->size();
    for (std::size_t i = size - 4; i < size; ++i) {
      programs->push_back(
          lower_reduce(lower_sends(lower_recompute((*programs)[i], RecomputePass::kAll))));
    }
    if (spec.ranks == 2) {
      programs->push_back(join_pieces({programs->end() - 8, programs->end() - 4}));
    }
  }
}

std::vector<Program> subjects() {
  std::vector<Program> programs;
  add_asynchronous(&programs);
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.asynchronous) continue;
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

template <typename Element>
auto at(std::vector<Element>& list, std::size_t step) {
  return list.begin() + static_cast<std::ptrdiff_t>(step);
}

// An instruction takes its version along.

void drop(Program* program, std::size_t rank, std::size_t step) {
  program->ranks[rank].erase(at(program->ranks[rank], step));
  if (program->is_asynchronous()) {
    program->versions[rank].erase(at(program->versions[rank], step));
  }
}

void insert(Program* program, std::size_t rank, std::size_t step, Instruction i, int version) {
  program->ranks[rank].insert(at(program->ranks[rank], step), i);
  if (program->is_asynchronous()) {
    program->versions[rank].insert(at(program->versions[rank], step), version);
  }
}

void swap(Program* program, std::size_t rank, std::size_t one, std::size_t other) {
  std::swap(program->ranks[rank][one], program->ranks[rank][other]);
  if (program->is_asynchronous()) {
    std::swap(program->versions[rank][one], program->versions[rank][other]);
  }
}

/// True where a Program without this backward is another valid one: it leaves it to the next.
bool may_be_left(const Program& program, std::size_t rank, std::size_t step) {
  Program mutant = program;
  drop(&mutant, rank, step);
  return program.open && NaiveCheck::accepts(mutant);
}

std::ptrdiff_t number_of(const Program& program, Kind kind) {
  std::ptrdiff_t count = 0;
  for (const auto& list : program.ranks) {
    count +=
        std::count_if(list.begin(), list.end(), [&](Instruction i) { return i.kind() == kind; });
  }
  return count;
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
      // Without the only REDUCE or STEP there is, a Program has none.
      if (is_once_a_step(kind) && number_of(program, kind) == 1) return;
      if (may_be_left(program, rank, step)) return;
      Program mutant = program;
      drop(&mutant, rank, step);
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
        insert(&mutant, rank, to, copy, program.version(rank, step));
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
        insert(&mutant, to, mutant.ranks[to].size(), mutant.ranks[rank][step],
               program.version(rank, step));
        drop(&mutant, rank, step);
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
        swap(&swapped, rank, step, to);
        Program moved = program;
        drop(&moved, rank, step);
        insert(&moved, rank, to, program.ranks[rank][step], program.version(rank, step));
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

TEST(Mutation, OtherVersionsAreJudgedAsTheDefinitionSays) {
  int caught = 0;
  int harmless = 0;
  const auto judge = [&](const Program& mutant) {
    const bool valid = NaiveCheck::accepts(mutant);
    ASSERT_EQ(accepts(mutant), valid) << to_text(mutant);
    ++(valid ? harmless : caught);
  };
  for (const Program& program : subjects()) {
    if (!program.is_asynchronous()) continue;
    for_every_place(program, [&](std::size_t rank, std::size_t step) {
      for (const int version : {-1, 0, 1, 2, 3, 4, 9}) {
        Program mutant = program;
        mutant.versions[rank][step] = version;
        if (version != program.versions[rank][step]) judge(mutant);
      }
    });
    for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
      for (int keeps = -1; keeps <= 5; ++keeps) {
        Program mutant = program;
        mutant.keeps[rank] = keeps;
        judge(mutant);
      }
    }
    Program reopened = program;
    reopened.open = !program.open;
    judge(reopened);
  }
  EXPECT_GT(caught, 1'000);
  EXPECT_GT(harmless, 100);  // some versions are as good: those of one stage between two updates
}

TEST(Mutation, SeveralAtOnceAreJudgedAsTheDefinitionSays) {
  std::mt19937 random(20260101);
  const auto programs = subjects();
  int valid_ones = 0;
  for (int round = 0; round < 5'000; ++round) {
    Program mutant = programs[random() % programs.size()];
    for (int i = 0; i < 2; ++i) {
      const std::size_t rank = random() % mutant.ranks.size();
      const std::size_t size = mutant.ranks[rank].size();
      if (size < 2) continue;
      const std::size_t step = random() % (size - 1);
      swap(&mutant, rank, step, step + 1);
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
