#pragma once

#include <span>
#include <string>

#include "pipewright/partition/partition.h"

namespace pipewright {

struct StepTimeSpec {
  std::string schedule = "1f1b";
  int micro_batches = 1;
  int num_stages = 1;  // ranks * the schedule's chunks
};

struct StepTimePartition {
  Partition partition;
  double step_time = 0;  // simulated, backward twice forward
  bool exact = false;    // no split is faster; false where the search ran out of its budget
};

/// The split of layers with the least simulated step time for a schedule and a number of micro-batches:
/// not always the one with the lightest bottleneck. A layer's cost is its forward time; its backward takes
/// twice that (its halves once each). Never slower than partition_by_bottleneck's split.
StepTimePartition partition_by_step_time(std::span<const double> costs, const StepTimeSpec& spec);

}  // namespace pipewright
