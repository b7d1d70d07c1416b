#pragma once

#include <cstddef>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// Follows which versions of its weights each rank holds, instruction by instruction: the newest,
/// and those that a later instruction or Program::keeps needs, with all between. An update that
/// finds its own version needed by others makes a copy; a version goes with its last use. Of a
/// synchronous Program: one version, always.
class HeldVersions {
 public:
  explicit HeldVersions(const Program& program);

  /// Held at present, the newest included.
  int held(std::size_t rank) const { return ranks_[rank].held; }
  int most_held(std::size_t rank) const { return ranks_[rank].most_held; }

  /// By how many updates gradients were late at most: updates of the stage between the weights that
  /// a backward used and those that its gradients changed.
  int delay(std::size_t rank) const { return ranks_[rank].delay; }

  /// After the instruction at `step`; of each rank in the order of its list. Returns how many more
  /// are held than before.
  int take(std::size_t rank, std::size_t step);

 private:
  struct Rank {
    std::vector<int> oldest_after;  // by step
    int newest = 0;
    int held = 1;
    int most_held = 1;
    int oldest_gradient = -1;  // version, since the last update; -1: none
    int delay = 0;
  };

  void start(std::size_t rank);

  const Program& program_;
  std::vector<Rank> ranks_;
};

/// By rank: the most versions that it holds at a time while it runs the Program.
std::vector<int> most_versions(const Program& program);

}  // namespace pipewright
