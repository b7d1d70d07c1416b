#pragma once

#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// The pieces of an asynchronous schedule, which ends with a drain, as one Program: micro-batches
/// numbered through.
inline Program join_pieces(const std::vector<Program>& pieces) {
  Program whole = pieces.front();
  whole.num_micro_batches = 0;
  for (auto& list : whole.ranks) list.clear();
  for (auto& list : whole.versions) list.clear();
  for (const Program& piece : pieces) {
    const int first = whole.num_micro_batches - piece.carried.micro_batches;
    for (std::size_t rank = 0; rank < piece.ranks.size(); ++rank) {
      for (const Instruction i : piece.ranks[rank]) {
        const bool once = is_once_a_step(i.kind());
        whole.ranks[rank].push_back(
            once ? i
                 : Instruction(i.kind(), Stage{i.stage()}, MicroBatch{first + i.micro_batch()}));
      }
      whole.versions[rank].insert(whole.versions[rank].end(), piece.versions[rank].begin(),
                                  piece.versions[rank].end());
    }
    whole.num_micro_batches = first + piece.num_micro_batches;
  }
  whole.keeps = pieces.back().keeps;
  whole.open = pieces.back().open;
  return whole;
}

}  // namespace pipewright
