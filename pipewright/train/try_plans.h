#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipewright/plan/plan.h"
#include "pipewright/train/batch.h"

namespace pipewright {

class Trainer;

struct TryOptions {
  std::size_t plans = 4;  // so many are run
  int warm_up = 1;        // steps of each that do not count
  int steps = 3;          // and that do
};

/// A plan and what happened when it was run.
struct TriedPlan {
  Plan plan;                             // as predicted
  double step_seconds = 0;               // the median
  std::vector<std::int64_t> peak_bytes;  // by rank
  std::string failure;                   // why it did not run; empty: it did
};

/// The plans worth a try: the fastest, and the next that are not nearly the same: that have another
/// schedule, number of chunks or kind of recompute, or a micro-batch a tenth larger or smaller. Of
/// three or more the last is the best with a kind of recompute that no other has, if there is one:
/// predictions of one kind are off alike.
std::vector<Plan> plans_to_try(const std::vector<Plan>& plans, std::size_t count);

/// Runs the best of the plans for a few steps each: predictions are a few per cent off, and plans
/// are often closer than that. What ran comes first, fastest first; what did not (a layer that ran
/// out of memory after all) last, with the reason.
///
/// `plans`: fastest first, as search_plans() has them. `trainer`: makes one that runs a plan, with
/// a model of its own: its weights change.
std::vector<TriedPlan> try_plans(
    const std::vector<Plan>& plans,
    const std::function<std::unique_ptr<Trainer>(const Plan&)>& trainer, const Batch& batch,
    const TryOptions& options = {});

}  // namespace pipewright
