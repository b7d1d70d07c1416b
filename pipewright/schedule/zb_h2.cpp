#include <algorithm>

#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 3 ranks, 6 micro-batches; F, I and W take 1 each:
//
//     rank 0  F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
//     rank 1   . F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
//     rank 2   .  . F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5
//
// H1 with a longer warm-up, which fills the gap before the first input gradient comes: rank r
// starts with 2 (ranks - r) - 1 forwards and makes weight gradients 2 r micro-batches late. From
// its first to its last instruction no rank idles when F, I and W take equally long; rank 0 holds 2
// ranks - 1 micro-batches. Zero Bubble Pipeline Parallelism (arXiv 2401.10241), H2.
Program make_zb_h2(const ScheduleSpec& spec) {
  Program program;
  program.placement = looped_placement(spec.ranks, 1);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    ListWriter list(spec.ranks, spec.micro_batches);
    const int warm_up = std::min(2 * (spec.ranks - rank) - 1, spec.micro_batches);
    for (int m = 0; m < warm_up; ++m) list.forward(rank);
    for (int m = 0; m < spec.micro_batches; ++m) {
      list.backward_input(rank);
      if (m >= 2 * rank) list.backward_weight(rank);
      list.forward(rank);
    }
    while (list.num_weights(rank) < spec.micro_batches) list.backward_weight(rank);
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace pipewright
