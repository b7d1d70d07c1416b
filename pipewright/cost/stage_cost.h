#pragma once

#include <cstddef>
#include <vector>

namespace pipewright {

/// What one micro-batch costs on one stage. Times are in any one unit; bytes may be fractions where
/// a rank's share was divided by its chunks.
struct StageCost {
  double forward = 0;
  double backward = 0;         // the whole backward, where it is not split
  double backward_input = 0;   // its input-gradient half
  double backward_weight = 0;  // its weight-gradient half
  double recompute = 0;
  double reduce = 0;  // once a step
  double step = 0;    // once a step

  double activation_bytes = 0;   // held from the forward to the backward (or its input half)
  double boundary_bytes = 0;     // held from the forward to R, where the stage recomputes
  double weight_half_bytes = 0;  // held from the input half to the weight half

  double static_bytes = 0;          // held at all times: parameters, gradients, the optimizer's
  double weight_bytes = 0;          // of one more version of its parameters
  double forward_temp_bytes = 0;    // while F runs, above what it leaves
  double recompute_temp_bytes = 0;  // while R runs, above what it leaves
  double backward_temp_bytes = 0;   // while B or I runs, above what it found
  double weight_temp_bytes = 0;     // while W runs

  double link_time =
      0;  // that its output, or the gradient of that, occupies a link, beside its own
};

/// A link between two ranks, one for each direction. A message occupies it for `time` and arrives
/// `latency` after that; messages of one link follow each other.
struct LinkCost {
  double latency = 0;
  double time = 0;
};

struct StepCosts {
  std::vector<StageCost> stages;
  LinkCost link;
};

/// A rank's whole share of the model for one micro-batch, as `pipewright simulate` takes it: every
/// rank the same, every chunk an equal part.
struct UniformShare {
  double forward = 1;
  double backward = 2;
  double backward_input = 1;
  double backward_weight = 1;
  double activation_bytes = 0;
  double boundary_bytes = 0;  // of one boundary: not divided by the chunks
  double weight_bytes = 0;    // its parameters
};

/// Costs of `num_stages` equal stages, `num_chunks` of them on a rank.
std::vector<StageCost> uniform_stages(const UniformShare& share, std::size_t num_stages,
                                      std::size_t num_chunks);

}  // namespace pipewright
