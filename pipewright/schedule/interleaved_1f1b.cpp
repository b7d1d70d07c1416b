#include <algorithm>

#include "pipewright/schedule/list_writer.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 2 ranks, 2 chunks a rank (stages 0, 2 and 1, 3), 4 micro-batches; a chunk's forward takes 1, its
// backward 2; small letters are the second chunk:
//
//     rank 0  F0 F1 f0 f1 F2  . b0 b0 F3 b1 b1 f2 B0 B0 f3 B1 B1  . b2 b2  . b3 b3 B2 B2 B3 B3
//     rank 1   . F0 F1 f0 b0 b0 f1 b1 b1 F2 B0 B0 F3 B1 B1 f2 b2 b2 f3 b3 b3 B2 B2 B3 B3
//
// Micro-batches go in groups of `ranks`: a group passes the first chunk, then the second, and so
// on. A rank warms up until its first backward can come, then alternates. The bubble is that of
// 1f1b divided by the chunks. The order needs whole groups: where the micro-batches leave one
// incomplete, it is written for whole groups and the micro-batches beyond are left out, which keeps
// it valid.
Program make_interleaved_1f1b(const ScheduleSpec& spec) {
  Program program;
  program.placement = looped_placement(spec.ranks, spec.chunks);
  const int groups = (spec.micro_batches + spec.ranks - 1) / spec.ranks;
  const int total = groups * spec.ranks * spec.chunks;
  const auto chunk_of = [&](int index) { return index / spec.ranks % spec.chunks; };
  for (int rank = 0; rank < spec.ranks; ++rank) {
    ListWriter list(program.num_stages(), spec.micro_batches);
    const auto stage_of = [&](int chunk) { return chunk * spec.ranks + rank; };
    // With one chunk this is 1f1b. With more, a backward of the last chunk needs twice the
    // distance.
    const int distance = (spec.ranks - rank - 1) * (spec.chunks > 1 ? 2 : 1);
    const int warm_up = std::min(distance + (spec.chunks - 1) * spec.ranks, total);
    int forwards = 0;
    for (; forwards < warm_up; ++forwards) list.forward(stage_of(chunk_of(forwards)));
    for (int backwards = 0; backwards < total; ++backwards) {
      if (forwards < total) list.forward(stage_of(chunk_of(forwards++)));
      list.backward(stage_of(spec.chunks - 1 - chunk_of(backwards)));
    }
    program.ranks.push_back(list.take());
  }
  return program;
}

}  // namespace pipewright
