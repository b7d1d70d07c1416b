#pragma once

#include "pipewright/nn/sequence.h"

namespace pipewright {

// Who made the first value that is not a number, or infinite? These look at every tensor, which
// costs a pass over each and, on a GPU, a wait.

/// Throws Error where an output of layer `index` has such a value; the message names the layer.
void check_finite(const Sequence& model, std::size_t index, const Tensors& outputs);

/// Makes the backward throw when the gradient that arrives at an output of layer `index` has such a
/// value: the layer after it, or the loss, made it.
void watch_gradients(const Sequence& model, std::size_t index, const Tensors& outputs);

}  // namespace pipewright
