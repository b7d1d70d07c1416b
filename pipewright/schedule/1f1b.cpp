#include <algorithm>

#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

namespace {

// Every rank warms up with `ahead` forwards for each rank after it, then alternates.
Program alternate(const ScheduleSpec& spec, int ahead) {
  Program program;
  program.placement = looped_placement(spec.ranks, 1);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    ListWriter list(spec.ranks, spec.micro_batches);
    list.reserve(2 * static_cast<std::size_t>(spec.micro_batches));
    const int warm_up = std::min(ahead * (spec.ranks - rank - 1), spec.micro_batches);
    for (int m = 0; m < warm_up; ++m) list.forward(rank);
    for (int m = 0; m < spec.micro_batches; ++m) {
      list.forward(rank);  // nothing once all are done
      list.backward(rank);
    }
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace

// 3 ranks, 4 micro-batches; backward takes twice as long as forward:
//
//     rank 0  F0 F1 F2  .  .  .  . B0 B0 F3 B1 B1  . B2 B2  . B3 B3
//     rank 1   . F0 F1  .  . B0 B0 F2 B1 B1 F3 B2 B2  . B3 B3
//     rank 2   .  . F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3
//
// A rank warms up with as many forwards as there are ranks from it to the end, then alternates: it
// never holds more than ranks - rank micro-batches, whatever their number.
Program make_1f1b(const ScheduleSpec& spec) { return alternate(spec, 1); }

// The same where a rank warms up with twice as many forwards:
//
//     rank 0  F0 F1 F2 F3  .  .  . B0 B0  . B1 B1  . B2 B2  . B3 B3
//     rank 1   . F0 F1 F2  . B0 B0 F3 B1 B1  . B2 B2  . B3 B3
//     rank 2   .  . F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3
//
// In 1f1b a forward ends just when the next rank wants it: whatever delays one, a slow link or an
// uneven core, all wait for. Here it lies ready a micro-batch earlier. The bubble is the same; rank
// r holds up to 2 (ranks - r) - 1 micro-batches.
Program make_eager_1f1b(const ScheduleSpec& spec) { return alternate(spec, 2); }

}  // namespace pipewright
