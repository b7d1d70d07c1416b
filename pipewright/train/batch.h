#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// A mini-batch. Every tensor is split along dimension 0, but for the inputs marked shared (a mask,
/// a table), which every micro-batch gets whole.
struct Batch {
  Tensors inputs;
  Tensors targets = {};
  std::vector<char> shared_inputs = {};  // by input; shorter than inputs: the rest is not shared
};

/// The rows of a batch. Throws InvalidArgument where there are none, or tensors differ in them.
std::int64_t rows_of(const Batch& batch);

/// The tensors of each of `parts` micro-batches; splits differ by at most one row.
std::vector<Tensors> split(const Tensors& tensors, const std::vector<char>& shared, int parts);

}  // namespace pipewright
