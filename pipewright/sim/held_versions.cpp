#include "pipewright/sim/held_versions.h"

#include <algorithm>

namespace pipewright {

HeldVersions::HeldVersions(const Program& program)
    : program_(program), ranks_(program.ranks.size()) {
  if (!program.is_asynchronous()) return;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) start(rank);
}

/// Reads the list from its end for what is needed, and off it what there is at the start.
void HeldVersions::start(std::size_t rank) {
  Rank& own = ranks_[rank];
  const auto& list = program_.ranks[rank];
  own.oldest_after.resize(list.size());
  int oldest = program_.keeps[rank];
  int newest = oldest;
  for (std::size_t step = list.size(); step-- > 0;) {
    own.oldest_after[step] = oldest;
    const int version = program_.versions[rank][step];
    if (list[step].kind() == Kind::kStep) newest = version - 1;
    if (!is_compute(list[step].kind())) continue;
    oldest = std::min(oldest, version);
    newest = std::max(newest, version);
  }
  own.newest = newest;
  own.held = own.most_held = newest - oldest + 1;
}

int HeldVersions::take(std::size_t rank, std::size_t step) {
  if (!program_.is_asynchronous()) return 0;
  Rank& own = ranks_[rank];
  const Kind kind = program_.ranks[rank][step].kind();
  const int version = program_.versions[rank][step];
  if (kind == Kind::kBackward) {
    own.oldest_gradient =
        own.oldest_gradient < 0 ? version : std::min(own.oldest_gradient, version);
  }
  if (kind == Kind::kStep) {
    if (own.oldest_gradient >= 0) {
      own.delay = std::max(own.delay, version - 1 - own.oldest_gradient);
    }
    own.oldest_gradient = -1;
    own.newest = version;
  }
  const int before = own.held;
  own.held = std::max(1, own.newest - own.oldest_after[step] + 1);
  own.most_held = std::max(own.most_held, own.held);
  return own.held - before;
}

std::vector<int> most_versions(const Program& program) {
  HeldVersions held(program);
  std::vector<int> most;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) held.take(rank, step);
    most.push_back(held.most_held(rank));
  }
  return most;
}

}  // namespace pipewright
