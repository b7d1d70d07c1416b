#include "pipewright/sim/steady.h"

#include <algorithm>

namespace pipewright {
namespace {

/// Updates of a rank before its drain: all but those after the second backward that no forward
/// follows.
int num_steady_updates(const std::vector<Instruction>& list) {
  int updates = 0;
  int after_forward = 0;  // updates since then with no more than one backward before them
  int backwards = 0;      // since the last forward
  for (const Instruction i : list) {
    if (i.kind() == Kind::kForward) {
      updates += after_forward;
      after_forward = backwards = 0;
    }
    if (i.kind() == Kind::kBackward) ++backwards;
    if (i.kind() == Kind::kStep && backwards <= 1) ++after_forward;
  }
  return updates + after_forward;
}

}  // namespace

SteadyWindow::SteadyWindow(const Program& program)
    : ranks_(program.ranks.size()), times_(program.ranks.size()) {
  if (!program.is_asynchronous() || program.ranks.empty()) return;
  last_update_ = num_steady_updates(program.ranks.front());
  for (const auto& list : program.ranks) {
    last_update_ = std::min(last_update_, num_steady_updates(list));
  }
  first_update_ = last_update_ / 2;
  if (first_update_ == 0) last_update_ = 0;  // the warm-up would be among it
}

void SteadyWindow::add(std::size_t rank, Span span) {
  if (!exists()) return;
  Rank& own = ranks_[rank];
  if (own.updates >= first_update_ && own.updates < last_update_) {
    span.start -= own.begin;
    span.end -= own.begin;
    times_.add(rank, span);
    if (rank == 0 && span.kind == Kind::kBackward) ++num_micro_batches_;
  }
  if (span.kind != Kind::kStep || ++own.updates != first_update_) return;
  own.begin = span.end;
  times_.add(rank, {.kind = Kind::kStep});  // no time: waiting begins here too
}

}  // namespace pipewright
