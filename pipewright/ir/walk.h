#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// How long a SEND keeps its rank.
enum class Sends { kReturnAtOnce, kBlockUntilReceived };

/// In which order a walk visits instructions that could run at the same time.
enum class WalkOrder {
  /// Round by round: in a round each rank that can runs one instruction, lower ranks first, and
  /// what a
  /// round finishes is there for the next one: as if every instruction took the same time.
  kRounds,
  /// Each rank as far as it comes, then the next: kinder to the caches, where any order will do.
  kRankByRank,
};

/// Walks a Program in an order in which it can run: every instruction after what it depends on,
/// every rank's in their order. This is the one place that knows what an instruction waits for;
/// validator, lowering, simulator and CSV writer all walk.
///
/// Of a Program that goes on from another (Program::carried), what was done before counts as done.
///
/// What follows from it, linear in the instructions: a walk that ends before every list does has
/// met a deadlock, and lacks() tells what each rank waits for.
class Walk {
 public:
  struct Visit {
    Instruction instruction;
    std::size_t rank;
    std::int64_t round;  // with kRounds
  };

  /// Throws ScheduleError where a number is out of range, or stages times micro-batches (those that
  /// are carried left out) exceed the instructions: no nonsense of a few bytes can ask for much
  /// memory.
  Walk(const Program& program, Sends sends, WalkOrder order);

  /// The next instruction, or nothing at the end: of all lists, or of what can run.
  std::optional<Visit> next();

  /// True where every rank came to the end of its list.
  bool finished() const { return num_left_ == 0; }

  /// How far a rank came: the index of the instruction it has yet to run.
  std::size_t position(std::size_t rank) const { return positions_[rank]; }

  /// What the next instruction of a rank waits for; nothing where it can run or the list has ended.
  /// A gradient made by I is asked for as B where the Program does not tell which.
  std::optional<Instruction> lacks(std::size_t rank) const;

 private:
  std::size_t cell(int stage, int micro_batch) const;
  bool done(Kind kind, int stage, int micro_batch) const;
  bool crosses(int stage) const { return crosses_[static_cast<std::size_t>(stage)] != 0; }
  std::size_t rank_of(int stage) const {
    return static_cast<std::size_t>(program_->placement[static_cast<std::size_t>(stage)]);
  }
  std::optional<Instruction> lacks_input(Instruction at) const;
  std::optional<Instruction> lacks_partner(Instruction at) const;
  bool pending(Instruction wanted) const;
  int waiting_stage(Instruction at) const;
  void mark_carried();
  void offer(std::size_t rank);
  bool turn_to_next_rank();
  void poke_waiting(Instruction at);

  const Program* program_;
  Sends sends_;
  WalkOrder order_;
  bool lowered_;
  std::vector<char> crosses_;       // by stage: its output goes to another rank by SEND and RECV
  std::vector<std::uint8_t> done_;  // by cell(): a bit a kind
  std::vector<std::size_t> positions_;
  std::vector<char> queued_;
  std::vector<std::size_t> now_;
  std::vector<std::size_t> then_;
  std::size_t cursor_ = 0;
  std::size_t rank_ = 0;  // whose turn it is
  bool goes_on_ = false;  // rank by rank: and it can run its next instruction too
  std::size_t num_left_ = 0;
  std::int64_t round_ = 0;
};

}  // namespace pipewright
