#pragma once

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// The sum of sparse gradients of one parameter, coalesced. What they have for one index is added
/// in their order, and within one in its own: the same bits every time. For those of embeddings on
/// the CPU several times as fast as LibTorch's coalesce().
torch::Tensor join_sparse(const Tensors& parts);

}  // namespace pipewright
