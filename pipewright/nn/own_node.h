#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>

#include "pipewright/nn/tensors.h"

namespace pipewright {

// For operations with a node of autograd of their own.

/// Whether x is a CPU's, in full precision, and nothing looks at single operations now (autocast, a
/// trace).
bool runs_plainly_on_cpu(const torch::Tensor& x);

/// Makes `out` the node's output, and the inputs that learn what it leads to, in their order.
/// Undefined ones are left out.
void set_node(torch::Tensor* out, const std::shared_ptr<torch::autograd::Node>& node,
              const Tensors& inputs);

}  // namespace pipewright
