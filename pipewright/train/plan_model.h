#pragma once

#include <vector>

#include "pipewright/plan/search.h"
#include "pipewright/profile/measure.h"
#include "pipewright/train/batch.h"

namespace pipewright {

struct PlannedModel {
  std::vector<Profile> profiles;  // what was measured, by size of micro-batch
  PlanSearch search;              // plans, fastest first: strategy_of(search.plans[0])
};

/// Plans by measuring. The layers are measured with micro-batches of 1, 4, 16, ... rows, as far as
/// `batch` and the memory of the device reach; then, since between measured sizes times are only
/// interpolated, with the sizes of the best plans, until the best one of every kind of recompute is
/// of a size that was measured, as far as some rounds reach. The model stays where it is and as it
/// was. Throws InvalidArgument where the request or the batch is wrong, and what a layer throws.
///
/// `batch`: rows to measure with; as many as the largest micro-batch that may be planned, at best.
PlannedModel plan_model(const Sequence& model, const Loss& loss, const Batch& batch,
                        const PlanRequest& request, const MeasureOptions& options = {});

}  // namespace pipewright
