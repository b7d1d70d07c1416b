#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/recompute/chain.h"

namespace pipewright {

struct RecomputePlan {
  bool feasible = false;
  OperationsCost cost;                // of the operations
  std::vector<Operation> operations;  // empty where not feasible
  std::int64_t least_budget_bytes = 0;
  /// No plan of its class (none that drops what it kept before it is used) is faster. False where
  /// sizes had to be rounded up to `unit_bytes`, or a long chain's layers taken in runs: then there
  /// may be one.
  bool exact = true;
  std::int64_t unit_bytes = 1;
};

/// The fastest way to run a chain forward and backward within a budget: the dynamic program of
/// Beaumont et al., arXiv 1911.13214. Exact where the budget is no more than `most_units` of the
/// greatest common divisor of outputs and saved bytes; else those are rounded up, never down.
/// `most_units` 0: as many as a chain of that length is planned with in a second. Chains of more
/// than 240 layers are planned in runs of layers.
RecomputePlan optimal_recompute(const Chain& chain, std::int64_t budget_bytes, int most_units = 0);

/// One plan for each time that some budget up to this one gives, fastest first, each with as little
/// memory as it needs; the last is the plan of least memory. Empty where none fits.
std::vector<RecomputePlan> recompute_frontier(const Chain& chain, std::int64_t budget_bytes,
                                              int most_units = 0);

/// The least budget that any such plan needs, exactly.
std::int64_t least_budget(const Chain& chain);

}  // namespace pipewright
