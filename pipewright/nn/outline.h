#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// What is known of a parameter or a buffer without having it.
struct TensorOutline {
  std::string name;  // within its layer
  bool is_parameter = true;
  bool requires_grad = true;
  std::vector<std::int64_t> sizes = {};
  torch::ScalarType type = torch::kFloat32;
  torch::Device device = torch::kCPU;
  int number = 0;  // tensors of one number are one tensor that several layers share

  std::int64_t numel() const;
};

/// By layer: its parameters, then its buffers.
using Outline = std::vector<std::vector<TensorOutline>>;

/// Layers of add_later() that are not there are made for it one at a time, without drawing their
/// numbers (NoDraws), and let go: the whole model is never held. What depends on the whole model
/// (its split into stages, names in files, which weights are shared) is found here, the same in
/// every process.
Outline outline_of(const Sequence& model);

/// Numbers that are learned; of a tensor that several layers share, once.
std::int64_t num_parameters(const Outline& outline);

}  // namespace pipewright
