#pragma once

#include "pipewright/recompute/optimal.h"

namespace pipewright {

/// A stage in a pipeline: its layers, and how many micro-batches it holds at the same time.
struct StageChain {
  Chain chain;
  std::int64_t input_bytes = 0;  // of a micro-batch; held from its forward to its backward
  std::int64_t skip_bytes = 0;   // the same of skips, which others may want
  int in_flight = 1;
  double host_bandwidth = 0;  // bytes per time; above 0: what is kept may go to the host's memory
};

/// What a list takes where the inputs it keeps lie in the host's memory, copied there and back
/// beside the layers' work: none of the device's memory but for those at hand, and time only where
/// the copies take longer than the work. `input_bytes`: of the first layer.
OperationsCost run_offloaded(const StageChain& stage, const std::vector<Operation>& operations);

struct StageRecompute {
  bool feasible = false;
  RecomputePlan plan;                   // of one micro-batch
  bool offload = false;                 // what it keeps goes to the host's memory
  std::int64_t peak_bytes = 0;          // of the stage: what all micro-batches hold, one at work
  std::int64_t least_budget_bytes = 0;  // that some plan would do with
};

/// The fastest plan found, with or without offload, that keeps the stage within the budget. Each
/// micro-batch follows the same plan; those that wait for their backward hold what it holds after
/// its forward. For one micro-batch in flight no plan of the class is faster (RecomputePlan::exact
/// says with which rounding); for more, none of those that are fastest for one. No list of
/// checkpoints at equal distances that fits is faster.
StageRecompute plan_stage(const StageChain& stage, std::int64_t budget_bytes, int most_units = 0);

}  // namespace pipewright
