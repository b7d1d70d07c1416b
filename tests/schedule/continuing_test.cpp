// Pieces of asynchronous schedules: what each does, which versions it uses, and that nothing is
// lost between them.

#include "pipewright/schedule/continuing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "pipewright/base/error.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

std::string text_of(const Program& program, std::size_t rank) {
  std::string text;
  for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) {
    const int version = program.versions[rank][step];
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", to_text(program.ranks[rank][step]),
                        version < 0 ? "" : fmt::format("@{}", version));
  }
  return text;
}

TEST(Continuing, PipedreamUsesTheNewestVersionOfEachRank) {
  ContinuingSchedule schedule({.name = "pipedream", .ranks = 3});
  std::vector<Program> pieces;
  for (int i = 0; i < 5; ++i) pieces.push_back(schedule.next(1, true));
  pieces.push_back(schedule.drain());
  const Program whole = join_pieces(pieces);
  EXPECT_EQ(text_of(whole, 0),
            "0F0@0 0F1@0 0F2@0 0B0@0 0STEP@1 0F3@1 0B1@0 0STEP@2 0F4@2 0B2@0 0STEP@3 "
            "0B3@1 0STEP@4 0B4@2 0STEP@5");
  EXPECT_EQ(text_of(whole, 1),
            "1F0@0 1F1@0 1B0@0 1STEP@1 1F2@1 1B1@0 1STEP@2 1F3@2 1B2@1 1STEP@3 1F4@3 1B3@2 "
            "1STEP@4 1B4@3 1STEP@5");
  EXPECT_EQ(text_of(whole, 2),
            "2F0@0 2B0@0 2STEP@1 2F1@1 2B1@1 2STEP@2 2F2@2 2B2@2 2STEP@3 2F3@3 2B3@3 2STEP@4 "
            "2F4@4 2B4@4 2STEP@5");
}

TEST(Continuing, VerticalSyncUsesTheVersionOfRank0Everywhere) {
  ContinuingSchedule schedule({.name = "pipedream", .ranks = 2, .vertical_sync = true});
  std::vector<Program> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(schedule.next(1, true));
  pieces.push_back(schedule.drain());
  const Program whole = join_pieces(pieces);
  EXPECT_EQ(text_of(whole, 0),
            "0F0@0 0F1@0 0B0@0 0STEP@1 0F2@1 0B1@0 0STEP@2 0F3@2 0B2@1 0STEP@3 0B3@2 0STEP@4");
  EXPECT_EQ(text_of(whole, 1),
            "1F0@0 1B0@0 1STEP@1 1F1@0 1B1@0 1STEP@2 1F2@1 1B2@1 1STEP@3 1F3@2 1B3@2 1STEP@4");
}

TEST(Continuing, TwoBufferedWeightsAreOneUpdateOldOnAllRanks) {
  ContinuingSchedule schedule({.name = "pipedream-2bw", .ranks = 2});
  std::vector<Program> pieces;
  for (int i = 0; i < 3; ++i) pieces.push_back(schedule.next(2, true));
  pieces.push_back(schedule.drain());
  const Program whole = join_pieces(pieces);
  EXPECT_EQ(text_of(whole, 0),
            "0F0@0 0F1@0 0B0@0 0F2@0 0B1@0 0STEP@1 0F3@0 0B2@0 0F4@1 0B3@0 0STEP@2 0F5@1 0B4@1 "
            "0B5@1 0STEP@3");
  EXPECT_EQ(text_of(whole, 1),
            "1F0@0 1B0@0 1F1@0 1B1@0 1STEP@1 1F2@0 1B2@0 1F3@0 1B3@0 1STEP@2 1F4@1 1B4@1 1F5@1 "
            "1B5@1 1STEP@3");
}

TEST(Continuing, APieceSaysWhatIsUnderWayAndWhatIsKept) {
  ContinuingSchedule schedule({.name = "pipedream", .ranks = 3});
  const Program first = schedule.next(4, true);
  EXPECT_EQ(first.carried, Carried{});
  EXPECT_EQ(first.num_micro_batches, 4);
  EXPECT_TRUE(first.open);
  EXPECT_EQ(first.keeps, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(schedule.num_carried(), 2);

  const Program second = schedule.next(4, true);
  EXPECT_EQ(second.carried, (Carried{.micro_batches = 2, .backwards = {0, 1, 2}}));
  EXPECT_EQ(second.num_micro_batches, 6);
  EXPECT_EQ(text_of(second, 0), "0F2@0 0B0@0 0F3@0 0B1@0 0STEP@1 0F4@1 0B2@0 0F5@1 0B3@0");

  const Program last = schedule.drain();
  EXPECT_EQ(last.num_micro_batches, 2);
  EXPECT_FALSE(last.open);
  EXPECT_EQ(last.keeps, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(schedule.num_carried(), 0);
}

TEST(Continuing, AfterADrainTheNewestVersionIsUsed) {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    ContinuingSchedule schedule({.name = name, .ranks = 2});
    schedule.next(2, true);
    schedule.next(2, true);
    schedule.drain();
    const Program piece = schedule.next(2, true);
    EXPECT_EQ(piece.carried, Carried{});
    EXPECT_EQ(text_of(piece, 0), "0F0@2 0F1@2 0B0@2") << name;
    EXPECT_EQ(text_of(piece, 1), "1F0@2 1B0@2 1F1@2 1B1@2 1STEP@3") << name;
  }
}

TEST(Continuing, ADrainWithNothingLeftIsEmpty) {
  ContinuingSchedule schedule({.name = "pipedream", .ranks = 1});
  EXPECT_FALSE(schedule.next(3, true).open);
  const Program drain = schedule.drain();
  EXPECT_EQ(drain.num_instructions(), 0U);
  EXPECT_NO_THROW(validate(lower_sends(drain)));
}

/// Plays a schedule's lists with versions as names and forgets what `keeps` does not name: what is
/// used must be there, and a backward must use what its forward used.
class Player {
 public:
  explicit Player(int ranks)
      : held_(static_cast<std::size_t>(ranks), {0}), forwards_(held_.size()) {}

  void play(const Program& piece) {
    for (std::size_t rank = 0; rank < piece.ranks.size(); ++rank) {
      for (std::size_t step = 0; step < piece.ranks[rank].size(); ++step) {
        run(rank, piece.ranks[rank][step], piece.versions[rank][step]);
      }
      auto& held = held_[rank];
      EXPECT_EQ(held.count(piece.keeps[rank]), 1U) << "rank " << rank;
      held.erase(held.begin(), held.lower_bound(piece.keeps[rank]));
      most_held_ = std::max(most_held_, held.size());
    }
    std::size_t done = 0;  // by stage 0: later local numbers start there
    while (!forwards_[0].contains(static_cast<int>(done)) &&
           static_cast<int>(done) < piece.num_micro_batches) {
      ++done;
    }
    for (auto& forwards : forwards_) {
      std::map<int, int> shifted;
      for (const auto& [m, version] : forwards) shifted[m - static_cast<int>(done)] = version;
      forwards = shifted;
    }
  }

  std::size_t most_held() const { return most_held_; }
  std::size_t num_under_way(std::size_t rank) const { return forwards_[rank].size(); }
  int newest(std::size_t rank) const { return *held_[rank].rbegin(); }

 private:
  void run(std::size_t rank, Instruction i, int version) {
    auto& held = held_[rank];
    if (i.kind() == Kind::kStep) {
      EXPECT_EQ(version, *held.rbegin() + 1);
      held.insert(version);
      return;
    }
    EXPECT_EQ(held.count(version), 1U) << to_text(i) << "@" << version;
    if (i.kind() == Kind::kForward) forwards_[rank][i.micro_batch()] = version;
    if (i.kind() != Kind::kBackward) return;
    const auto forward = forwards_[rank].find(i.micro_batch());
    ASSERT_NE(forward, forwards_[rank].end()) << to_text(i);
    EXPECT_EQ(forward->second, version) << to_text(i);
    forwards_[rank].erase(forward);
  }

  std::vector<std::set<int>> held_;
  std::vector<std::map<int, int>> forwards_;  // micro-batch under way: version
  std::size_t most_held_ = 0;
};

class EveryContinuing : public testing::TestWithParam<ContinuingSpec> {
 protected:
  /// Pieces of mini-batches of M and M + 1 in turn, of which `merge` make an update; a drain in the
  /// middle where `drains`, after the first mini-batch of an update if that has several.
  static std::vector<Program> pieces_of(const ContinuingSpec& spec, int micro_batches, int merge,
                                        bool drains) {
    ContinuingSchedule schedule(spec);
    std::vector<Program> pieces;
    for (int i = 0; i < 3 * merge; ++i) {
      pieces.push_back(schedule.next(micro_batches + i % 2, (i + 1) % merge == 0));
      if (drains && i == merge + 1) pieces.push_back(schedule.drain());
    }
    pieces.push_back(schedule.drain());
    return pieces;
  }

  template <typename Check>
  void sweep(Check check) const {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (int micro_batches = 1; micro_batches <= 6; ++micro_batches) {
        for (int merge = 1; merge <= 3; ++merge) {
          ContinuingSpec spec = GetParam();
          spec.ranks = ranks;
          if (merge * micro_batches < least_between_updates(spec.name, ranks)) continue;
          SCOPED_TRACE(testing::Message() << spec.name << " K=" << ranks << " M=" << micro_batches
                                          << " merge=" << merge);
          check(pieces_of(spec, micro_batches, merge, false), ranks, merge);
          check(pieces_of(spec, micro_batches, merge, true), ranks, merge);
        }
      }
    }
  }
};

TEST_P(EveryContinuing, PiecesAreValidPlainAndLowered) {
  sweep([](const std::vector<Program>& pieces, int, int) {
    for (const Program& piece : pieces) {
      EXPECT_NO_THROW(validate(piece)) << to_text(piece);
      for (const auto pass : {RecomputePass::kAll, RecomputePass::kExceptLast}) {
        const Program sent = lower_sends(lower_recompute(piece, pass));
        EXPECT_NO_THROW(validate(lower_step(lower_reduce(sent)))) << to_text(sent);
        EXPECT_EQ(sent.carried, piece.carried);
        EXPECT_EQ(sent.keeps, piece.keeps);
        EXPECT_EQ(sent.open, piece.open);
      }
    }
  });
}

TEST_P(EveryContinuing, TheWholeOfThemIsValid) {
  sweep([](const std::vector<Program>& pieces, int, int) {
    const Program whole = join_pieces(pieces);
    EXPECT_NO_THROW(validate(whole));
    EXPECT_NO_THROW(validate(lower_reduce(lower_sends(whole))));
  });
}

TEST_P(EveryContinuing, WhatIsUsedIsKeptAndBackwardsUseTheVersionOfTheirForward) {
  sweep([](const std::vector<Program>& pieces, int ranks, int) {
    Player player(ranks);
    for (const Program& piece : pieces) player.play(piece);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      EXPECT_EQ(player.num_under_way(rank), 0U);
      EXPECT_EQ(player.newest(rank), 3);
    }
    if (!find_schedule(GetParam().name).two_versions) return;
    EXPECT_LE(player.most_held(), 2U);
  });
}

INSTANTIATE_TEST_SUITE_P(All, EveryContinuing,
                         testing::Values(ContinuingSpec{.name = "pipedream"},
                                         ContinuingSpec{.name = "pipedream", .vertical_sync = true},
                                         ContinuingSpec{.name = "pipedream-2bw"},
                                         ContinuingSpec{.name = "eager-pipedream"},
                                         ContinuingSpec{.name = "eager-pipedream",
                                                        .vertical_sync = true},
                                         ContinuingSpec{.name = "eager-pipedream-2bw"}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (test.param.vertical_sync ? "_in_sync" : "");
                         });

/// A rank's list of a whole run by formulas: so many mini-batches of M, an update after `every`.
std::vector<std::pair<Instruction, int>> list_by_formula(const ScheduleSpec& spec, int rank) {
  const int each = spec.name.starts_with("eager-") ? 2 : 1;
  const int behind = each * (spec.ranks - 1 - rank);
  const int group = spec.micro_batches * spec.updates_every;
  const auto version = [&](int m) {
    if (spec.name.ends_with("pipedream-2bw")) return std::max(0, m / group - 1);
    return std::max(0, m - (spec.vertical_sync ? each * (spec.ranks - 1) : behind)) / group;
  };
  std::vector<std::pair<Instruction, int>> list;
  const int count = spec.micro_batches * spec.mini_batches;
  for (int m = 0; m < count + behind; ++m) {
    const Stage stage{rank};
    if (m < count) list.emplace_back(Instruction(Kind::kForward, stage, MicroBatch{m}), version(m));
    const int back = m - behind;
    if (back < 0) continue;
    list.emplace_back(Instruction(Kind::kBackward, stage, MicroBatch{back}), version(back));
    if ((back + 1) % group == 0) {
      list.emplace_back(Instruction(Kind::kStep, stage), (back + 1) / group);
    }
  }
  return list;
}

TEST_P(EveryContinuing, TheClosedProgramIsThatOfTheFormulasAndOfThePieces) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 6; ++micro_batches) {
      for (const int updates_every : {0, 1, 3}) {
        for (const int mini_batches : {0, 1, 2, 7}) {
          ScheduleSpec spec{.name = GetParam().name,
                            .ranks = ranks,
                            .micro_batches = micro_batches,
                            .mini_batches = mini_batches,
                            .updates_every = updates_every,
                            .vertical_sync = GetParam().vertical_sync};
          if (updates_every * micro_batches < least_between_updates(spec.name, ranks)) {
            spec.updates_every = 0;
          }
          SCOPED_TRACE(testing::Message() << spec.name << " K=" << ranks << " M=" << micro_batches
                                          << " every " << updates_every << " N=" << mini_batches);
          const Program program = make_schedule(spec);
          spec = filled_in(spec);
          EXPECT_NO_THROW(validate(program));
          EXPECT_NO_THROW(validate(lower_reduce(lower_sends(program))));
          EXPECT_FALSE(program.open);
          EXPECT_EQ(program.carried, Carried{});
          for (int rank = 0; rank < ranks; ++rank) {
            const auto r = static_cast<std::size_t>(rank);
            std::vector<std::pair<Instruction, int>> list;
            for (std::size_t i = 0; i < program.ranks[r].size(); ++i) {
              list.emplace_back(program.ranks[r][i], program.versions[r][i]);
            }
            EXPECT_EQ(list, list_by_formula(spec, rank));
          }
        }
      }
    }
  }
}

TEST(Continuing, TheDefaultIsLongEnoughForASteadyState) {
  const auto sizes = [](const ScheduleSpec& spec) {
    const ScheduleSpec full = filled_in(spec);
    return std::pair(full.mini_batches, full.updates_every);
  };
  EXPECT_EQ(sizes({.name = "pipedream", .ranks = 4, .micro_batches = 8}), (std::pair{4, 1}));
  EXPECT_EQ(sizes({.name = "pipedream", .ranks = 4, .micro_batches = 1}), (std::pair{24, 1}));
  EXPECT_EQ(sizes({.name = "pipedream-2bw", .ranks = 4, .micro_batches = 1}), (std::pair{24, 4}));
  EXPECT_EQ(sizes({.name = "pipedream-2bw", .ranks = 4, .micro_batches = 3}), (std::pair{8, 2}));
  EXPECT_EQ(sizes({.name = "eager-pipedream", .ranks = 4, .micro_batches = 1}), (std::pair{48, 1}));
  EXPECT_EQ(sizes({.name = "eager-pipedream-2bw", .ranks = 4, .micro_batches = 3}),
            (std::pair{18, 3}));
  EXPECT_EQ(sizes({.name = "1f1b", .ranks = 4, .micro_batches = 3}), (std::pair{1, 0}));
}

template <typename Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Continuing, RefusesInClearWords) {
  EXPECT_THAT(refusal_of([] { ContinuingSchedule({.name = "1f1b"}); }),
              HasSubstr("'1f1b' does not go on from one mini-batch to the next; pipedream and "
                        "pipedream-2bw do"));
  EXPECT_THAT(refusal_of([] { ContinuingSchedule({.name = "pipedream", .ranks = 0}); }),
              HasSubstr("cannot run on 0 ranks; use 1 or more"));
  EXPECT_THAT(
      refusal_of([] { ContinuingSchedule({.name = "pipedream-2bw", .vertical_sync = true}); }),
      HasSubstr("leave out vertical sync"));
  EXPECT_THAT(refusal_of([] { ContinuingSchedule({.name = "pipedream"}).next(0, true); }),
              HasSubstr("cannot run a mini-batch of 0 micro-batches; use 1 or more"));
}

TEST(Continuing, TwoBufferedWeightsNeedAMicroBatchARankAnUpdate) {
  ContinuingSchedule schedule({.name = "pipedream-2bw", .ranks = 4});
  schedule.next(1, true);  // the first since the pipeline was empty: no update is behind it
  schedule.next(2, false);
  EXPECT_THAT(refusal_of([&] { schedule.next(1, true); }),
              HasSubstr("pipedream-2bw would update after 3 micro-batches, but with 4 ranks it "
                        "needs at least 4 between updates"));
  EXPECT_EQ(schedule.num_carried(), 3);  // as it was
  EXPECT_NO_THROW(validate(schedule.next(2, true)));
  ContinuingSchedule eager({.name = "eager-pipedream-2bw", .ranks = 4});
  eager.next(1, true);
  EXPECT_THAT(refusal_of([&] { eager.next(6, true); }),
              HasSubstr("eager-pipedream-2bw would update after 6 micro-batches, but with 4 ranks "
                        "it needs at least 7 between updates"));
}

/// What is in reserve changes when something runs, not with what: a pipedream-2bw of as many
/// micro-batches an update uses the same versions.
TEST(Continuing, TwoBufferedWeightsWithAReserveComputeTheSame) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    ScheduleSpec spec{
        .name = "eager-pipedream-2bw", .ranks = ranks, .micro_batches = 2 * ranks - 1};
    spec.mini_batches = 6;
    const Program eager = make_schedule(spec);
    spec.name = "pipedream-2bw";
    const Program plain = make_schedule(spec);
    const auto used = [](const Program& program, std::size_t rank) {
      std::map<std::string, int> versions;
      for (std::size_t i = 0; i < program.ranks[rank].size(); ++i) {
        if (program.ranks[rank][i].kind() == Kind::kStep) continue;
        versions[to_text(program.ranks[rank][i])] = program.versions[rank][i];
      }
      return versions;
    };
    for (std::size_t rank = 0; rank < eager.ranks.size(); ++rank)
      EXPECT_EQ(used(eager, rank), used(plain, rank)) << "K=" << ranks << " rank " << rank;
  }
}

TEST(Continuing, AReserveIsOneMicroBatchMoreForEveryRankBehind) {
  ContinuingSchedule schedule({.name = "eager-pipedream", .ranks = 2});
  std::vector<Program> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(schedule.next(1, true));
  pieces.push_back(schedule.drain());
  const Program whole = join_pieces(pieces);
  EXPECT_EQ(text_of(whole, 0),
            "0F0@0 0F1@0 0F2@0 0B0@0 0STEP@1 0F3@1 0B1@0 0STEP@2 0B2@0 0STEP@3 0B3@1 0STEP@4");
  EXPECT_EQ(text_of(whole, 1),
            "1F0@0 1B0@0 1STEP@1 1F1@1 1B1@1 1STEP@2 1F2@2 1B2@2 1STEP@3 1F3@3 1B3@3 1STEP@4");
}

TEST(Continuing, ScheduleSpecsAreRefusedInClearWords) {
  EXPECT_THAT(
      refusal_of([] { make_schedule({.name = "1f1b", .mini_batches = 2}); }),
      HasSubstr("1f1b ends with every mini-batch: several of them and vertical sync are for "
                "pipedream and pipedream-2bw"));
  EXPECT_THAT(refusal_of([] { make_schedule({.name = "gpipe", .vertical_sync = true}); }),
              HasSubstr("gpipe ends with every mini-batch"));
  EXPECT_THAT(refusal_of([] { make_schedule({.name = "pipedream", .mini_batches = -1}); }),
              HasSubstr("cannot run -1 mini-batches"));
  EXPECT_THAT(refusal_of([] {
                make_schedule(
                    {.name = "pipedream-2bw", .ranks = 4, .micro_batches = 2, .updates_every = 1});
              }),
              HasSubstr("would update after 2 micro-batches"));
  EXPECT_THAT(
      refusal_of([] {
        make_schedule({.name = "pipedream", .micro_batches = 1 << 20, .mini_batches = 1 << 20});
      }),
      HasSubstr("are more than"));
}

}  // namespace
}  // namespace pipewright
