#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipewright/data/source.h"
#include "pipewright/input/array.h"

namespace pipewright {

/// Rows of arrays in files: sample i is row i of each. Tensors have the arrays' types (unsigned
/// numbers of more than a byte come as larger signed ones).
class ArraySource final : public DataSource {
 public:
  /// Throws InvalidArgument where the arrays differ in rows, or tensors of this LibTorch have no
  /// such type.
  ArraySource(std::vector<ArrayFile> inputs, std::vector<ArrayFile> targets);

  std::int64_t size() const override { return inputs_.front().rows(); }
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;

 private:
  std::vector<ArrayFile> inputs_;
  std::vector<ArrayFile> targets_;
};

/// An array by its name: `rows.npy`, `rows.idx` (or MNIST's `...-ubyte`), `file.safetensors:name`.
/// Throws InvalidArgument for other names.
ArrayFile open_array(const std::string& name);

}  // namespace pipewright
