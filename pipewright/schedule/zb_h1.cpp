#include <algorithm>

#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 3 ranks, 4 micro-batches; F, I and W take 1 each:
//
//     rank 0  F0 F1 F2  .  . I0 W0 F3 I1 W1 I2 W2 I3 W3
//     rank 1   . F0 F1  . I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//     rank 2   .  . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
//
// 1f1b with the backward split: the input gradient goes on its way at once, the weight gradient of
// rank r is made r micro-batches later, where the rank would idle at the end. Idle time a rank:
// (ranks - 1)(F + I - W) instead of (ranks - 1)(F + I + W); as many micro-batches held as in 1f1b.
// Zero Bubble Pipeline Parallelism (arXiv 2401.10241), H1.
Program make_zb_h1(const ScheduleSpec& spec) {
  Program program;
  program.placement = looped_placement(spec.ranks, 1);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    ListWriter list(spec.ranks, spec.micro_batches);
    const int warm_up = std::min(spec.ranks - rank - 1, spec.micro_batches);
    for (int m = 0; m < warm_up; ++m) list.forward(rank);
    for (int m = 0; m < spec.micro_batches; ++m) {
      list.forward(rank);
      list.backward_input(rank);
      if (m >= rank) list.backward_weight(rank);
    }
    while (list.num_weights(rank) < spec.micro_batches) list.backward_weight(rank);
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace pipewright
