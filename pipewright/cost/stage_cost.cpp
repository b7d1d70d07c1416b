#include "pipewright/cost/stage_cost.h"

namespace pipewright {

std::vector<StageCost> uniform_stages(const UniformShare& share, std::size_t num_stages,
                                      std::size_t num_chunks) {
  const double part = static_cast<double>(num_chunks);
  StageCost cost;
  cost.forward = share.forward / part;
  cost.backward = share.backward / part;
  cost.backward_input = share.backward_input / part;
  cost.backward_weight = share.backward_weight / part;
  cost.recompute = cost.forward;
  cost.activation_bytes = share.activation_bytes / part;
  cost.boundary_bytes = share.boundary_bytes;
  cost.weight_bytes = share.weight_bytes / part;
  cost.weight_half_bytes = cost.activation_bytes / 2;
  return std::vector<StageCost>(num_stages, cost);
}

}  // namespace pipewright
