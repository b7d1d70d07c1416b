#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 3 ranks, 4 micro-batches:
//
//     rank 0  F0 F1 F2 F3
//     rank 1   . F0 F1 F2 F3
//     rank 2   .  . F0 F1 F2 F3
//
// Inference. With several chunks a rank goes chunk by chunk.
Program make_forward_only(const ScheduleSpec& spec) {
  Program program;
  program.placement = looped_placement(spec.ranks, spec.chunks);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    ListWriter list(program.num_stages(), spec.micro_batches);
    for (int chunk = 0; chunk < spec.chunks; ++chunk) {
      for (int m = 0; m < spec.micro_batches; ++m) list.forward(chunk * spec.ranks + rank);
    }
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace pipewright
