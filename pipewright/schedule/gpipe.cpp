#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 3 ranks, 3 micro-batches; backward takes twice as long as forward:
//
//     rank 0  F0 F1 F2  .  .  .  .  .  . B0 B0 B1 B1 B2 B2
//     rank 1   . F0 F1 F2  .  .  . B0 B0 B1 B1 B2 B2
//     rank 2   .  . F0 F1 F2 B0 B0 B1 B1 B2 B2
//
// All forwards, then all backwards: a rank holds every micro-batch. With several chunks a rank goes
// chunk by chunk (stage s on rank s mod ranks), forwards up, backwards down.
Program make_gpipe(const ScheduleSpec& spec) {
  Program program;
  program.placement = looped_placement(spec.ranks, spec.chunks);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    ListWriter list(program.num_stages(), spec.micro_batches);
    for (int chunk = 0; chunk < spec.chunks; ++chunk) {
      for (int m = 0; m < spec.micro_batches; ++m) list.forward(chunk * spec.ranks + rank);
    }
    for (int chunk = spec.chunks - 1; chunk >= 0; --chunk) {
      for (int m = 0; m < spec.micro_batches; ++m) list.backward(chunk * spec.ranks + rank);
    }
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace pipewright
