#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pipewright/base/kind.h"

namespace pipewright {

/// One instruction on the time axis of its rank.
struct Span {
  double start = 0;
  double end = 0;
  double link_wait = 0;  // of the idle time just before `start`: how long the input was on the link
  int stage = 0;
  int micro_batch = -1;  // -1 for REDUCE and STEP
  Kind kind = Kind::kForward;
  int version = -1;  // of the weights it used or made; -1: of a synchronous schedule

  double duration() const { return end - start; }
};

/// From `time` on, a rank holds `bytes`.
struct MemoryPoint {
  double time = 0;
  double bytes = 0;
};

/// What happened in a step, rank by rank: predicted by the simulator or measured by the executor.
struct Timeline {
  std::string name;                      // what is drawn, e.g. the schedule
  std::string time_unit;                 // "s" for seconds, "" where the user's own unit counts
  std::vector<std::vector<Span>> ranks;  // by rank, in order of start, never overlapping
  std::vector<std::vector<MemoryPoint>> memory;  // by rank, in order of time; empty: not known
};

/// Sums over one rank's spans. Where sends and receives have a length (measured timelines only), it
/// counts as link_wait: the rank waited for the link, it was not busy.
struct RankTimes {
  double first_start = 0;
  double last_end = 0;
  double compute = 0;    // F, B, I, W
  double recompute = 0;  // R
  double update = 0;     // STEP
  double reduce = 0;     // REDUCE
  double link_wait = 0;
  bool any = false;

  void add(const Span& span);
  double busy() const { return compute + recompute + update + reduce; }
  double span() const { return last_end - first_start; }
};

/// The figures of a whole step. Built span by span, so that a simulation of millions of
/// instructions need not keep them.
class StepTimes {
 public:
  explicit StepTimes(std::size_t num_ranks) : ranks_(num_ranks) {}
  explicit StepTimes(const Timeline& timeline);

  void add(std::size_t rank, const Span& span) { ranks_[rank].add(span); }

  const std::vector<RankTimes>& ranks() const { return ranks_; }
  double step_time() const;        // from the first start of any rank to the last end of any
  double busy() const;             // summed over ranks
  double bubble_fraction() const;  // 1 - busy / (ranks * step_time); 0 for an empty step

 private:
  std::vector<RankTimes> ranks_;
};

}  // namespace pipewright
