#include "pipewright/ir/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "pipewright/base/error.h"
#include "pipewright/ir/carried.h"
#include "pipewright/ir/check_versions.h"
#include "pipewright/ir/inventory.h"
#include "pipewright/ir/reject.h"
#include "pipewright/ir/walk.h"

namespace pipewright {
namespace {

void check_shape(const Program& program) {
  const auto refuse = [](const std::string& why) { throw ScheduleError("validate", why); };
  if (program.ranks.empty()) refuse("the program has no ranks");
  if (program.placement.empty()) refuse("the program has no stages; its placement is empty");
  const bool nothing_left = program.is_asynchronous() && program.num_instructions() == 0;
  if (program.num_micro_batches < 1 && !nothing_left) refuse("the program has no micro-batches");
  check_carried(program, "validate");
  for (std::size_t stage = 0; stage < program.placement.size(); ++stage) {
    const int rank = program.placement[stage];
    if (rank >= 0 && rank < program.num_ranks()) continue;
    if (rank < 0)
      refuse(fmt::format("stage {} is missing: no rank has an instruction of it", stage));
    refuse(fmt::format("stage {} is placed on rank {}, but the ranks are 0 to {}", stage, rank,
                       program.num_ranks() - 1));
  }
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) {
      const Instruction i = program.ranks[rank][step];
      if (i.stage() >= program.num_stages()) {
        reject(program, {rank, step},
               fmt::format("{} is of stage {}, but the stages are 0 to {}", to_text(i), i.stage(),
                           program.num_stages() - 1));
      }
      if (!is_once_a_step(i.kind()) && i.micro_batch() >= program.num_micro_batches) {
        reject(program, {rank, step},
               fmt::format("{} is of micro-batch {}, but they are 0 to {}", to_text(i),
                           i.micro_batch(), program.num_micro_batches - 1));
      }
    }
  }
}

/// Fewer instructions than stages times micro-batches: names the first forward that is missing,
/// with memory for no more than there are instructions.
void check_count(const Program& program) {
  const std::size_t count = program.num_instructions();
  const auto stages = static_cast<std::size_t>(program.num_stages());
  const int carried = program.carried.micro_batches;
  const auto micro_batches = static_cast<std::size_t>(program.num_micro_batches - carried);
  if (micro_batches <= count / stages) return;
  std::vector<char> there(count + 1);
  for (const auto& list : program.ranks) {
    for (const Instruction i : list) {
      const std::size_t cell = static_cast<std::size_t>(i.stage()) * micro_batches +
                               static_cast<std::size_t>(std::max(i.micro_batch() - carried, 0));
      const bool new_forward = i.kind() == Kind::kForward && i.micro_batch() >= carried;
      if (new_forward && cell < there.size()) there[cell] = 1;
    }
  }
  const auto hole =
      static_cast<std::size_t>(std::find(there.begin(), there.end(), 0) - there.begin());
  const std::size_t stage = hole / micro_batches;
  const std::size_t lost = hole % micro_batches + static_cast<std::size_t>(carried);
  const auto rank = static_cast<std::size_t>(program.placement[stage]);
  reject(program, {rank, program.ranks[rank].size()},
         fmt::format("{}F{} is missing (forward of micro-batch {} on stage {})", stage, lost, lost,
                     stage));
}

/// Where the instruction that a stuck rank lacks stands. The walk asks for B where it may be I.
std::optional<Place> find_lacked(const Program& program, Instruction lacked) {
  if (const auto place = find(program, lacked)) return place;
  if (lacked.kind() != Kind::kBackward) return std::nullopt;
  return find(program,
              {Kind::kBackwardInput, Stage{lacked.stage()}, MicroBatch{lacked.micro_batch()}});
}

/// Follows who waits for whom from a stuck rank until it closes, and shows the cycle.
[[noreturn]] void report_deadlock(const Program& program, const Walk& walk, Sends sends) {
  std::vector<std::size_t> order(program.ranks.size(),
                                 0);  // 1 + place in the chain; 0: not yet seen
  std::vector<std::string> chain;
  std::size_t rank = 0;
  while (walk.position(rank) == program.ranks[rank].size()) ++rank;
  std::vector<std::size_t> ranks;
  while (order[rank] == 0) {
    const Place here{rank, walk.position(rank)};
    const auto lacked = walk.lacks(rank);
    const auto there = lacked ? find_lacked(program, *lacked) : std::nullopt;
    internal_check(lacked.has_value(), "a stuck rank waits for something");
    if (!there) {  // an open Program may leave a backward to the next one
      reject(program, here,
             fmt::format("{} needs {}, which no rank has", to_text(program.ranks[rank][here.step]),
                         to_text(*lacked)));
    }
    const Instruction wanted = program.ranks[there->rank][there->step];
    const Instruction waiting = program.ranks[rank][here.step];
    if (there->rank == rank) {
      reject(
          program, here,
          fmt::format("{} waits for itself: it needs {}, which the same rank has only at step {}",
                      to_text(waiting), to_text(wanted), there->step));
    }
    ranks.push_back(rank);
    order[rank] = ranks.size();
    chain.push_back(fmt::format("rank {} at step {} ({}) waits for {} of rank {}", rank, here.step,
                                to_text(waiting), to_text(wanted), there->rank));
    rank = there->rank;
  }
  const std::size_t start = order[rank] - 1;
  const std::vector<std::string> cycle(chain.begin() + static_cast<std::ptrdiff_t>(start),
                                       chain.end());
  const Place mark{rank, walk.position(rank)};
  reject(program, mark,
         fmt::format(
             "{} waits for itself{}: {}", to_text(program.ranks[rank][mark.step]),
             sends == Sends::kBlockUntilReceived ? " where a send blocks until it is received" : "",
             fmt::join(cycle, ", ")));
}

void check_deadlock(const Program& program, Sends sends) {
  Walk walk(program, sends, WalkOrder::kRankByRank);
  while (walk.next()) {
  }
  if (!walk.finished()) report_deadlock(program, walk, sends);
}

}  // namespace

void validate(const Program& program, BackwardOrder order) {
  check_shape(program);
  check_count(program);
  check_inventory(program, order);
  check_deadlock(program, Sends::kReturnAtOnce);
  if (program.is_asynchronous()) check_program_versions(program);
  if (program.is_lowered()) check_deadlock(program, Sends::kBlockUntilReceived);
}

}  // namespace pipewright
