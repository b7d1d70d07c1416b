#include "pipewright/ir/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/ir/reject.h"

namespace pipewright {
namespace {

constexpr std::uint16_t bit_of(Kind kind) {
  return static_cast<std::uint16_t>(1U << static_cast<unsigned>(kind));
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
                  : fmt::format("{} is a duplicate of {}", to_text(i), words_for(first)));
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
      const bool any_order = order_ == BackwardOrder::kAny && !program_.is_asynchronous();
      if (!any_order && i.micro_batch() < *last) {
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
        if (program_.open) check_beyond(stage, m, marks & ~needed);
      }
    }
  }

  /// Of an open Program: nothing may depend on a backward that it leaves to the next one.
  void check_beyond(int stage, int micro_batch, unsigned beyond) {
    for (const Kind kind : {Kind::kRecompute, Kind::kSendBackward, Kind::kRecvBackward}) {
      if ((beyond & bit_of(kind)) == 0) continue;
      if (kind == Kind::kRecompute && micro_batch < num_backwards(stage)) continue;  // may be
      const Instruction early(kind, Stage{stage}, MicroBatch{micro_batch});
      const auto place = find(program_, early);
      if (!place) continue;  // of what was carried
      reject(
          program_, *place,
          fmt::format("{} belongs to {}B{}, which this program leaves to the next one",
                      to_text(early), stage + (kind == Kind::kRecvBackward ? 1 : 0), micro_batch));
    }
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

}  // namespace

void check_inventory(const Program& program, BackwardOrder order) {
  Inventory(program, order).check();
}

}  // namespace pipewright
