#include "pipewright/ir/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "pipewright/base/error.h"
#include "pipewright/ir/carried.h"
#include "pipewright/ir/grid.h"
#include "pipewright/ir/walk.h"

namespace pipewright {
namespace {

constexpr std::uint16_t bit_of(Kind kind) {
  return static_cast<std::uint16_t>(1U << static_cast<unsigned>(kind));
}

std::string at(Place place) { return fmt::format("rank {}, step {}", place.rank, place.step); }

[[noreturn]] void reject(const Program& program, Place mark, std::string_view reason) {
  throw ScheduleError("validate",
                      fmt::format("{}: {}\n{}", at(mark), reason, show_grid(program, mark)));
}

std::optional<Place> find(const Program& program, Instruction wanted) {
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank];
    const auto found = std::find(list.begin(), list.end(), wanted);
    if (found != list.end()) return Place{rank, static_cast<std::size_t>(found - list.begin())};
  }
  return std::nullopt;
}

/// What can be said of the lists one instruction at a time, and by counting: everything but
/// deadlock.
class Inventory {
 public:
  Inventory(const Program& program, BackwardOrder order)
      : program_(program),
        order_(order),
        lowered_(program.is_lowered()),
        seen_(static_cast<std::size_t>(program.num_stages()) *
              static_cast<std::size_t>(program.num_micro_batches)),
        stages_(static_cast<std::size_t>(program.num_stages())) {
    mark_carried();
  }

  void check() {
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      for (std::size_t step = 0; step < program_.ranks[rank].size(); ++step) take({rank, step});
    }
    if (program_.open) check_left_backwards();
    check_complete();
    if (!program_.is_asynchronous()) check_once_a_step();
  }

 private:
  struct StageState {
    int last_gradient = -1;  // the newest micro-batch of a B or I
    int last_weight = -1;    // of a B or W
    int num_weights = 0;
    int num_reduces = 0;
    int num_steps = 0;
  };

  std::uint16_t& seen(Instruction i) {
    return seen_[static_cast<std::size_t>(i.stage()) *
                     static_cast<std::size_t>(program_.num_micro_batches) +
                 static_cast<std::size_t>(i.micro_batch())];
  }

  /// What was done before the Program began counts as seen.
  void mark_carried() {
    const Carried& carried = program_.carried;
    for (int stage = 0; stage < program_.num_stages() && carried.micro_batches > 0; ++stage) {
      StageState& state = stages_[static_cast<std::size_t>(stage)];
      state.num_weights = carried.backwards[static_cast<std::size_t>(stage)];
      state.last_gradient = state.last_weight = state.num_weights - 1;
      const int received = stage + 1 < program_.num_stages()
                               ? carried.backwards[static_cast<std::size_t>(stage) + 1]
                               : 0;
      for (int m = 0; m < carried.micro_batches; ++m) {
        unsigned kinds =
            bit_of(Kind::kForward) | bit_of(Kind::kSendForward) | bit_of(Kind::kRecvForward);
        if (m < state.num_weights) kinds |= bit_of(Kind::kBackward) | bit_of(Kind::kSendBackward);
        if (m < received) kinds |= bit_of(Kind::kRecvBackward);
        seen({Kind::kForward, Stage{stage}, MicroBatch{m}}) = static_cast<std::uint16_t>(kinds);
      }
    }
  }

  void take(Place place) {
    const Instruction i = program_.ranks[place.rank][place.step];
    check_rank(i, place);
    if (is_once_a_step(i.kind())) {
      if (!program_.is_asynchronous()) take_once_a_step(i, place);
      return;
    }
    std::uint16_t& marks = seen(i);
    if ((marks & bit_of(i.kind())) != 0) report_duplicate(i, place);
    if (is_backward(i.kind())) take_backward(i, place, marks);
    if (i.kind() == Kind::kRecompute) take_recompute(i, place, marks);
    if (is_send(i.kind()) || is_recv(i.kind())) check_message(i, place);
    marks = static_cast<std::uint16_t>(marks | bit_of(i.kind()));
  }

  [[noreturn]] void report_duplicate(Instruction i, Place place) {
    const Place first = *find(program_, i);
    const bool before = first.rank == place.rank && first.step == place.step;
    reject(program_, place,
           before ? fmt::format("{} is a duplicate: it was done before this program, which goes on "
                                "with {} micro-batches under way",
                                to_text(i), program_.carried.micro_batches)
                  : fmt::format("{} is a duplicate of {}", to_text(i), at(first)));
  }

  void check_rank(Instruction i, Place place) {
    const auto owner =
        static_cast<std::size_t>(program_.placement[static_cast<std::size_t>(i.stage())]);
    if (owner != place.rank) {
      reject(program_, place,
             fmt::format("{} is on the wrong rank: stage {} belongs to rank {}", to_text(i),
                         i.stage(), owner));
    }
  }

  void take_backward(Instruction i, Place place, std::uint16_t marks) {
    if (program_.forward_only) {
      reject(program_, place,
             fmt::format("{} is a backward in a forward-only program", to_text(i)));
    }
    const bool whole = i.kind() == Kind::kBackward;
    const std::uint16_t halves = bit_of(Kind::kBackwardInput) | bit_of(Kind::kBackwardWeight);
    if ((marks & (whole ? halves : bit_of(Kind::kBackward))) != 0) {
      reject(program_, place,
             fmt::format("{} doubles a backward: stage {} has both B and I or W of micro-batch {}",
                         to_text(i), i.stage(), i.micro_batch()));
    }
    StageState& stage = stages_[static_cast<std::size_t>(i.stage())];
    const auto follow = [&](int* last) {
      if (order_ == BackwardOrder::kIncreasing && i.micro_batch() < *last) {
        reject(
            program_, place,
            fmt::format(
                "{} comes after micro-batch {}; a stage's backwards must be in increasing order, "
                "or its gradients would add up in another order",
                to_text(i), *last));
      }
      *last = i.micro_batch();
    };
    if (i.kind() != Kind::kBackwardWeight) follow(&stage.last_gradient);
    if (i.kind() == Kind::kBackwardInput) return;
    follow(&stage.last_weight);
    ++stage.num_weights;
    if (stage.num_reduces + stage.num_steps > 0) {  // of a synchronous Program
      reject(program_, place,
             fmt::format("{} comes after the stage's {}", to_text(i),
                         stage.num_steps > 0 ? "STEP" : "REDUCE"));
    }
  }

  void take_recompute(Instruction i, Place place, std::uint16_t marks) {
    if (program_.forward_only) {
      reject(program_, place, fmt::format("{} recomputes in a forward-only program", to_text(i)));
    }
    if ((marks & (bit_of(Kind::kBackward) | bit_of(Kind::kBackwardInput))) != 0) {
      reject(program_, place, fmt::format("{} comes after the backward it is for", to_text(i)));
    }
  }

  void take_once_a_step(Instruction i, Place place) {
    StageState& stage = stages_[static_cast<std::size_t>(i.stage())];
    int& count = i.kind() == Kind::kReduce ? stage.num_reduces : stage.num_steps;
    if (program_.forward_only) {
      reject(program_, place,
             fmt::format("{} has nothing to do in a forward-only program", to_text(i)));
    }
    if (count++ > 0) reject(program_, place, fmt::format("{} is a duplicate", to_text(i)));
    if (i.kind() == Kind::kReduce && stage.num_steps > 0) {
      reject(program_, place, fmt::format("{} comes after the stage's STEP", to_text(i)));
    }
    if (stage.num_weights != program_.num_micro_batches) {
      reject(program_, place,
             fmt::format(
                 "{} comes after {} of the stage's {} backwards; it must come after all of them",
                 to_text(i), stage.num_weights, program_.num_micro_batches));
    }
  }

  bool crosses(int stage) const {
    if (stage < 0 || stage + 1 >= program_.num_stages()) return false;
    const auto s = static_cast<std::size_t>(stage);
    return program_.placement[s] != program_.placement[s + 1];
  }

  /// The boundary (after this stage) that a message of this kind at `stage` passes.
  static int boundary(Kind kind, int stage) {
    return kind == Kind::kSendForward || kind == Kind::kRecvBackward ? stage : stage - 1;
  }

  void check_message(Instruction i, Place place) {
    const int border = boundary(i.kind(), i.stage());
    if (crosses(border)) return;
    const bool outside = border < 0 || border + 1 >= program_.num_stages();
    reject(program_, place,
           outside ? fmt::format("{} has no partner: there is no stage beyond {}", to_text(i),
                                 i.stage())
                   : fmt::format("{} has no partner: stages {} and {} are on the same rank",
                                 to_text(i), border, border + 1));
  }

  /// Of an open Program: the backwards it does are the first ones, and no stage does one for which
  /// the stage after it leaves the gradient to the next Program.
  void check_left_backwards() {
    for (int stage = 0; stage + 1 < program_.num_stages(); ++stage) {
      const int own = num_backwards(stage);
      if (own <= num_backwards(stage + 1)) continue;
      const Instruction last(Kind::kBackward, Stage{stage}, MicroBatch{own - 1});
      reject(program_, find(program_, last).value_or(Place{}),
             fmt::format("{} needs {}B{}, which this program leaves to the next one", to_text(last),
                         stage + 1, own - 1));
    }
    if (num_backwards(0) == program_.num_micro_batches) {
      throw ScheduleError("validate",
                          "the program is open, but leaves no backward to the next one");
    }
  }

  /// How many micro-batches have their backward on a stage when the Program ends.
  int num_backwards(int stage) const {
    if (stage >= program_.num_stages()) return 0;
    if (!program_.open) return program_.forward_only ? 0 : program_.num_micro_batches;
    return stages_[static_cast<std::size_t>(stage)].last_gradient + 1;
  }

  /// Which kinds must be there for one stage and micro-batch, given whether its backward is split.
  std::uint16_t required(int stage, int micro_batch, bool split) const {
    unsigned kinds = bit_of(Kind::kForward);
    const bool backward = micro_batch < num_backwards(stage);
    if (backward && split) kinds |= bit_of(Kind::kBackwardInput) | bit_of(Kind::kBackwardWeight);
    if (backward && !split) kinds |= bit_of(Kind::kBackward);
    if (!lowered_) return static_cast<std::uint16_t>(kinds);
    if (crosses(stage)) kinds |= bit_of(Kind::kSendForward);
    if (crosses(stage - 1)) kinds |= bit_of(Kind::kRecvForward);
    if (crosses(stage - 1) && backward) kinds |= bit_of(Kind::kSendBackward);
    const bool comes_back = micro_batch < num_backwards(stage + 1);
    if (crosses(stage) && comes_back) kinds |= bit_of(Kind::kRecvBackward);
    return static_cast<std::uint16_t>(kinds);
  }

  void check_complete() {
    const unsigned halves = bit_of(Kind::kBackwardInput) | bit_of(Kind::kBackwardWeight);
    for (int stage = 0; stage < program_.num_stages(); ++stage) {
      std::array<std::uint16_t, 2> needs{};
      for (int m = 0; m < program_.num_micro_batches; ++m) {
        if (m == 0 || program_.open) {  // of a closed Program, all micro-batches need the same
          needs = {required(stage, m, false), required(stage, m, true)};
        }
        const std::uint16_t marks = seen({Kind::kForward, Stage{stage}, MicroBatch{m}});
        const unsigned needed = needs[(marks & halves) != 0 ? 1 : 0];
        const unsigned missing = needed & ~unsigned{marks};
        if (missing != 0) report_missing(stage, m, missing);
        if (program_.open) check_received(stage, m, marks & ~needed);
      }
    }
  }

  /// Of an open Program: a gradient must not be waited for that is not sent before its end.
  void check_received(int stage, int micro_batch, unsigned beyond) {
    if ((beyond & bit_of(Kind::kRecvBackward)) == 0 || !lowered_) return;
    const Instruction recv(Kind::kRecvBackward, Stage{stage}, MicroBatch{micro_batch});
    const auto place = find(program_, recv);
    if (!place) return;
    reject(program_, *place,
           fmt::format("{} waits for {}SEND_B{}, which this program leaves to the next one",
                       to_text(recv), stage + 1, micro_batch));
  }

  [[noreturn]] void report_missing(int stage, int micro_batch, unsigned missing) {
    for (const Kind kind : kAllKinds) {
      if ((missing & bit_of(kind)) == 0) continue;
      const Instruction lost(kind, Stage{stage}, MicroBatch{micro_batch});
      const auto rank =
          static_cast<std::size_t>(program_.placement[static_cast<std::size_t>(stage)]);
      reject(program_, {rank, program_.ranks[rank].size()},
             fmt::format("{} is missing ({} of micro-batch {} on stage {})", to_text(lost),
                         kind_words(kind), micro_batch, stage));
    }
    throw InternalError("validate", "nothing is missing after all");
  }

  void check_once_a_step() {
    const auto count = [&](int StageState::*member) {
      return std::count_if(stages_.begin(), stages_.end(),
                           [&](const StageState& s) { return s.*member > 0; });
    };
    for (const Kind kind : {Kind::kReduce, Kind::kStep}) {
      const auto member = kind == Kind::kReduce ? &StageState::num_reduces : &StageState::num_steps;
      const auto have = count(member);
      if (have == 0 || have == program_.num_stages()) continue;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
        if (stages_[stage].*member > 0) continue;
        const auto rank = static_cast<std::size_t>(program_.placement[stage]);
        reject(program_, {rank, program_.ranks[rank].size()},
               fmt::format("{}{} is missing, while {} other stages have theirs", stage,
                           kind_name(kind), have));
      }
    }
  }

  const Program& program_;
  BackwardOrder order_;
  bool lowered_;
  std::vector<std::uint16_t> seen_;  // by stage and micro-batch: a bit a kind
  std::vector<StageState> stages_;
};

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
    internal_check(there.has_value(), "a stuck rank waits for something that is nowhere");
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
  Inventory(program, order).check();
  check_deadlock(program, Sends::kReturnAtOnce);
  if (program.is_lowered()) check_deadlock(program, Sends::kBlockUntilReceived);
}

}  // namespace pipewright
