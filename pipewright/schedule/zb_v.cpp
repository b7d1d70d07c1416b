#include <algorithm>

#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 2 ranks, 4 micro-batches. Each rank has two chunks, placed in a V: stages 0 1 1 0 by rank, so
// that the last stage is where the first one is. F, I and W of a chunk take 1 each; small letters
// are the second chunk:
//
//     rank 0  F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3
//     rank 1   . F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3
//
// On rank r of p:
//   warm-up   2(p-r)-1 forwards of the first chunk; then r pairs of second, first chunk; then p-r
//   times
//             f i w of the second chunk: by now every rank holds p micro-batches' worth;
//   steady    F I W of the first chunk, f i w of the second;
//   drain     r pairs of I, i whose W wait, then the rest of I W, at last the W that waited.
// From its first to its last instruction no rank idles when F, I and W take equally long. The order
// needs 2p-1 micro-batches: with fewer it is written for those and the ones beyond are left out.
// Zero Bubble Pipeline Parallelism (arXiv 2401.10241), ZB-V.
Program make_zb_v(const ScheduleSpec& spec) {
  Program program;
  const int p = spec.ranks;
  for (int rank = 0; rank < p; ++rank) program.placement.push_back(rank);
  for (int rank = p - 1; rank >= 0; --rank) program.placement.push_back(rank);
  const int needed = std::max(spec.micro_batches, 2 * p - 1);

  for (int rank = 0; rank < p; ++rank) {
    ListWriter list(2 * p, spec.micro_batches);
    const int down = rank;            // the chunk on the way down the V
    const int up = 2 * p - 1 - rank;  // the chunk on the way up
    const auto backward = [&](int stage) {
      list.backward_input(stage);
      list.backward_weight(stage);
    };

    for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.forward(down);
    for (int i = 0; i < rank; ++i) {
      list.forward(up);
      list.forward(down);
    }
    for (int i = 0; i < p - rank; ++i) {
      list.forward(up);
      backward(up);
    }

    while (list.num_forwards(up) < needed) {
      if (list.num_forwards(down) < needed) list.forward(down);
      backward(down);
      list.forward(up);
      backward(up);
    }

    for (int i = 0; i < rank; ++i) {
      list.backward_input(down);
      list.backward_input(up);
    }
    for (int i = 0; i < p - rank; ++i) {
      list.backward_input(down);
      list.backward_weight(down);
    }
    while (list.num_weights(up) < needed) list.backward_weight(up);
    while (list.num_weights(down) < needed) list.backward_weight(down);
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace pipewright
