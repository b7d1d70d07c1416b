#include "pipewright/ir/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "pipewright/base/error.h"
#include "pipewright/ir/carried.h"

namespace pipewright {
namespace {

/// B and I share a bit: either makes the gradient that the stage before waits for.
constexpr std::uint8_t bit_of(Kind kind) {
  switch (kind) {
    case Kind::kForward: return 1;
    case Kind::kBackward:
    case Kind::kBackwardInput: return 2;
    case Kind::kBackwardWeight: return 4;
    case Kind::kRecompute: return 8;
    case Kind::kSendForward: return 16;
    case Kind::kRecvForward: return 32;
    case Kind::kSendBackward: return 64;
    case Kind::kRecvBackward: return 128;
    case Kind::kReduce:
    case Kind::kStep: return 0;
  }
  return 0;
}

/// The whole Program must be in range before anything is indexed by it.
void check_ranges(const Program& program) {
  for (const int rank : program.placement) {
    if (rank >= 0 && rank < program.num_ranks()) continue;
    throw ScheduleError("walk",
                        fmt::format("a stage is placed on rank {}, but the ranks are 0 to {}", rank,
                                    program.num_ranks() - 1));
  }
  const int stages = program.num_stages();
  const int micro_batches = program.num_micro_batches;
  for (const auto& list : program.ranks) {
    for (const Instruction at : list) {
      const bool once = is_once_a_step(at.kind());
      if (at.stage() < stages &&
          (once || (at.micro_batch() >= 0 && at.micro_batch() < micro_batches))) {
        continue;
      }
      throw ScheduleError(
          "walk", fmt::format("{} is out of range: there are {} stages and {} micro-batches",
                              to_text(at), stages, micro_batches));
    }
  }
}

std::size_t num_cells(const Program& program) {
  check_ranges(program);
  check_carried(program, "walk");
  const auto stages = static_cast<std::size_t>(program.num_stages());
  const auto carried = static_cast<std::size_t>(program.carried.micro_batches);
  const std::size_t micro_batches = static_cast<std::size_t>(program.num_micro_batches) - carried;
  const std::size_t least = program.num_instructions();
  if (stages != 0 && micro_batches > least / stages) {
    throw ScheduleError("walk",
                        fmt::format("{} stages times {} micro-batches need at least as many "
                                    "instructions, found {}; instructions are missing",
                                    stages, micro_batches, least));
  }
  return stages * (micro_batches + carried);
}

/// The other end of a SEND or a RECV.
Instruction partner(Instruction at) {
  const MicroBatch m{at.micro_batch()};
  switch (at.kind()) {
    case Kind::kSendForward: return {Kind::kRecvForward, Stage{at.stage() + 1}, m};
    case Kind::kRecvForward: return {Kind::kSendForward, Stage{at.stage() - 1}, m};
    case Kind::kSendBackward: return {Kind::kRecvBackward, Stage{at.stage() - 1}, m};
    default: return {Kind::kSendBackward, Stage{at.stage() + 1}, m};
  }
}

}  // namespace

Walk::Walk(const Program& program, Sends sends, WalkOrder order)
    : program_(&program),
      sends_(sends),
      order_(order),
      lowered_(program.is_lowered()),
      crosses_(program.placement.size()),
      done_(num_cells(program)),
      positions_(program.ranks.size()),
      queued_(program.ranks.size()) {
  for (std::size_t stage = 0; lowered_ && stage + 1 < crosses_.size(); ++stage) {
    crosses_[stage] = program.placement[stage] != program.placement[stage + 1] ? 1 : 0;
  }
  mark_carried();
  for (const auto& list : program.ranks) num_left_ += list.empty() ? 0 : 1;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) offer(rank);
  round_ = -1;
}

/// What was done before the Program began.
void Walk::mark_carried() {
  const Carried& carried = program_->carried;
  const auto mark = [&](int stage, int micro_batch, std::initializer_list<Kind> kinds) {
    std::uint8_t& marks = done_[cell(stage, micro_batch)];
    for (const Kind kind : kinds) marks = static_cast<std::uint8_t>(marks | bit_of(kind));
  };
  for (int stage = 0; stage < program_->num_stages(); ++stage) {
    for (int m = 0; m < carried.micro_batches; ++m) {
      const auto s = static_cast<std::size_t>(stage);
      mark(stage, m, {Kind::kForward, Kind::kSendForward, Kind::kRecvForward});
      if (m < carried.backwards[s]) mark(stage, m, {Kind::kBackward, Kind::kSendBackward});
      if (s + 1 < carried.backwards.size() && m < carried.backwards[s + 1]) {
        mark(stage, m, {Kind::kRecvBackward});
      }
    }
  }
}

/// Micro-batch by micro-batch: ranks at work at the same time are then neighbours in memory, and a
/// number of micro-batches that is a power of two does not put them all into the same lines of the
/// cache.
std::size_t Walk::cell(int stage, int micro_batch) const {
  return static_cast<std::size_t>(micro_batch) * crosses_.size() + static_cast<std::size_t>(stage);
}

bool Walk::done(Kind kind, int stage, int micro_batch) const {
  return (done_[cell(stage, micro_batch)] & bit_of(kind)) != 0;
}

/// What must be there before the instruction, on its own rank or, where the Program has no sends,
/// on any rank.
std::optional<Instruction> Walk::lacks_input(Instruction at) const {
  const int s = at.stage();
  const int m = at.micro_batch();
  const auto need = [&](Kind kind, int stage) -> std::optional<Instruction> {
    if (done(kind, stage, m)) return std::nullopt;
    return Instruction(kind, Stage{stage}, MicroBatch{m});
  };
  switch (at.kind()) {
    case Kind::kForward:
      if (s == 0) return std::nullopt;
      return crosses(s - 1) ? need(Kind::kRecvForward, s) : need(Kind::kForward, s - 1);
    case Kind::kBackward:
    case Kind::kBackwardInput:
      if (const auto forward = need(Kind::kForward, s)) return forward;
      if (s + 1 == program_->num_stages()) return std::nullopt;
      return crosses(s) ? need(Kind::kRecvBackward, s) : need(Kind::kBackward, s + 1);
    case Kind::kBackwardWeight: return need(Kind::kBackwardInput, s);
    case Kind::kRecompute:
    case Kind::kSendForward: return need(Kind::kForward, s);
    case Kind::kSendBackward: return need(Kind::kBackward, s);
    default: return std::nullopt;
  }
}

/// What the other end of a message must have done, or with blocking sends must stand at.
std::optional<Instruction> Walk::lacks_partner(Instruction at) const {
  const bool send = is_send(at.kind());
  if (!send && !is_recv(at.kind())) return std::nullopt;
  if (send && sends_ == Sends::kReturnAtOnce) return std::nullopt;
  const Instruction other = partner(at);
  if (other.stage() < 0 || other.stage() >= program_->num_stages()) return other;
  const bool there = sends_ == Sends::kReturnAtOnce
                         ? done(other.kind(), other.stage(), other.micro_batch())
                         : pending(other) && !lacks_input(other);
  return there ? std::nullopt : std::optional(other);
}

bool Walk::pending(Instruction wanted) const {
  const std::size_t rank = rank_of(wanted.stage());
  const auto& list = program_->ranks[rank];
  return positions_[rank] < list.size() && list[positions_[rank]] == wanted;
}

std::optional<Instruction> Walk::lacks(std::size_t rank) const {
  const auto& list = program_->ranks[rank];
  if (positions_[rank] == list.size()) return std::nullopt;
  const Instruction at = list[positions_[rank]];
  if (const auto input = lacks_input(at)) return input;
  return lacks_partner(at);
}

/// Puts a rank that can run its next instruction on the list of the next round, once.
void Walk::offer(std::size_t rank) {
  if (queued_[rank] != 0 || positions_[rank] == program_->ranks[rank].size()) return;
  if (lacks(rank)) return;
  queued_[rank] = 1;
  then_.push_back(rank);
}

/// The stage of another instruction that may have waited for this one; -1: none.
int Walk::waiting_stage(Instruction at) const {
  const int s = at.stage();
  switch (at.kind()) {
    case Kind::kForward: return s + 1 < program_->num_stages() && !crosses(s) ? s + 1 : -1;
    case Kind::kBackward:
    case Kind::kBackwardInput: return s > 0 && !crosses(s - 1) ? s - 1 : -1;
    case Kind::kSendForward: return s + 1 < program_->num_stages() ? s + 1 : -1;
    case Kind::kSendBackward: return s - 1;
    default: return -1;
  }
}

bool Walk::turn_to_next_rank() {
  if (cursor_ == now_.size()) {
    if (then_.empty()) return false;
    now_.swap(then_);
    then_.clear();
    if (order_ == WalkOrder::kRounds) std::sort(now_.begin(), now_.end());
    cursor_ = 0;
    ++round_;
  }
  rank_ = now_[cursor_++];
  return true;
}

/// Offers the ranks that may have waited for what was just run, or for its rank to come where it is
/// now.
void Walk::poke_waiting(Instruction at) {
  if (const int stage = waiting_stage(at); stage >= 0) offer(rank_of(stage));
  const auto& list = program_->ranks[rank_];
  if (sends_ == Sends::kReturnAtOnce || positions_[rank_] == list.size()) return;
  const Instruction upcoming = list[positions_[rank_]];
  if (!is_send(upcoming.kind()) && !is_recv(upcoming.kind())) return;
  const int stage = partner(upcoming).stage();
  if (stage >= 0 && stage < program_->num_stages()) offer(rank_of(stage));
}

std::optional<Walk::Visit> Walk::next() {
  if (!goes_on_ && !turn_to_next_rank()) return std::nullopt;
  const auto& list = program_->ranks[rank_];
  const Instruction at = list[positions_[rank_]];
  if (!is_once_a_step(at.kind())) {
    std::uint8_t& marks = done_[cell(at.stage(), at.micro_batch())];
    marks = static_cast<std::uint8_t>(marks | bit_of(at.kind()));
  }
  if (++positions_[rank_] == list.size()) --num_left_;
  goes_on_ = order_ == WalkOrder::kRankByRank && positions_[rank_] < list.size() && !lacks(rank_);
  queued_[rank_] = goes_on_ ? 1 : 0;
  if (!goes_on_) offer(rank_);
  poke_waiting(at);
  return Visit{at, rank_, round_};
}

}  // namespace pipewright
