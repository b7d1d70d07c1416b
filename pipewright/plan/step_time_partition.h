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

/// The split of layers with the least simulated step time for a schedule and a number of
/// micro-batches: not always the one with the lightest bottleneck. A layer's cost is its forward
/// time; its backward takes twice that (its halves once each). Among equally fast splits the one
/// with the lightest bottleneck, then the most balanced. Never slower than
/// partition_by_bottleneck's split.
///
/// Always exact while
///
///     C(layers - 1, stages - 1) * (instructions + 8 * (stages + 2)^2) <= 10^9
///
/// (the number of splits times the work of judging one): say 30 layers in 6 stages with 32
/// micro-batches. Mostly far beyond that, since few splits need to be simulated: 1,000 layers in 64
/// stages of 1f1b, 96 in 8 of any schedule with one stage a rank, 48 in 8 with two. Where the
/// budget runs out, `exact` is false and the split the best that was found. The budget is one of
/// work, not of time: every machine gives the same answer, within some seconds.
///
/// Costs are rounded to about 10^-13 of their sum where they have more digits than that.
///
/// Throws InvalidArgument as partition_by_bottleneck and make_schedule do, and where the stages do
/// not divide by the schedule's chunks; and for asynchronous schedules, whose pace is that of the
/// heaviest stage.
StepTimePartition partition_by_step_time(std::span<const double> costs, const StepTimeSpec& spec);

}  // namespace pipewright
