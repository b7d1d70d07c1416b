#pragma once

#include <torch/torch.h>

#include <vector>

namespace pipewright {

/// What passes between layers: one tensor or several.
using Tensors = std::vector<torch::Tensor>;

}  // namespace pipewright
