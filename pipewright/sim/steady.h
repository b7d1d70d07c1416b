#pragma once

#include <cstddef>
#include <vector>

#include "pipewright/ir/program.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// The part of an asynchronous Program between its warm-up and its drain, from one update to
/// another, the same two on all ranks:
///
///     rank 0   F F F B|F B|F B|F B|F B|B|B|        | an update
///     rank 1     F F B|F B|F B|F B|F B|B|
///     rank 2       F B|F B|F B|F B|F B|
///                         `-------'              of each rank, by its own clock
///
/// The second update is the last that no rank makes while it drains, the first one is in the middle
/// between that and the start.
class SteadyWindow {
 public:
  explicit SteadyWindow(const Program& program);

  /// False where the Program is synchronous, or too short to have one.
  bool exists() const { return last_update_ > first_update_; }

  /// Each rank's spans in their order.
  void add(std::size_t rank, Span span);

  /// Of the spans in it, as if all ranks began at 0.
  const StepTimes& times() const { return times_; }
  int num_micro_batches() const { return num_micro_batches_; }

 private:
  struct Rank {
    int updates = 0;
    double begin = 0;
  };

  int first_update_ = 0;
  int last_update_ = 0;
  int num_micro_batches_ = 0;
  std::vector<Rank> ranks_;
  StepTimes times_;
};

}  // namespace pipewright
