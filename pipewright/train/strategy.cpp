#include "pipewright/train/strategy.h"

namespace pipewright {

Strategy strategy_of(const Plan& plan) {
  Strategy strategy;
  strategy.ranks = plan.ranks;
  strategy.micro_batches = plan.micro_batches;
  strategy.schedule = plan.schedule;
  strategy.chunks = plan.chunks;
  strategy.sizes = plan.sizes;
  if (plan.operations.empty()) return strategy;
  strategy.recompute = plan.except_last ? RecomputeMode::kExceptLast : RecomputeMode::kPlanned;
  strategy.operations = plan.operations;
  strategy.offload = plan.offloads();
  strategy.offload_stages = plan.offload;
  return strategy;
}

}  // namespace pipewright
