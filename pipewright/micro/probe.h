#pragma once

#include "pipewright/exec/lanes.h"
#include "pipewright/train/batch.h"

namespace pipewright {

/// Tries some rows of a batch whole and in two parts, and throws InvalidArgument where the
/// gradients or the loss differ by more than rounding: then the model or its loss looks at several
/// samples at once. Also where a forward writes to a buffer of the model. Models that draw at
/// random are tried in eval mode, in which they do not. Nothing is changed. A batch of one row
/// shows nothing: returns false.
bool probe_samples(const Sequence& model, const Loss& loss, torch::Device device, bool divided,
                   const Batch& batch);

/// The mini-batch as run() of Lanes takes it. `divided`: the loss is a mean.
StepInput lane_input(std::vector<Tensors> inputs, std::vector<Tensors> targets, const Loss& loss,
                     bool divided);

}  // namespace pipewright
