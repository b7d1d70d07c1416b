#pragma once

#include <cstdint>
#include <span>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// Rows of samples: every tensor has one a row, in dimension 0.
struct SampleBatch {
  Tensors inputs;
  Tensors targets;
};

/// Samples by number. What a batch holds depends on the source, the numbers and the epoch alone, so
/// that a run can be resumed and several processes see the same. Calls may come from several
/// threads at once.
class DataSource {
 public:
  DataSource() = default;
  DataSource(const DataSource&) = delete;
  DataSource(DataSource&&) = delete;
  DataSource& operator=(const DataSource&) = delete;
  DataSource& operator=(DataSource&&) = delete;
  virtual ~DataSource() = default;

  virtual std::int64_t size() const = 0;  // samples are 0 to size() - 1

  /// The samples of these numbers, in this order. `epoch` is for sources that draw (masks): they
  /// draw anew in every epoch. Throws InvalidArgument with file and place where data is damaged.
  virtual SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const = 0;
};

}  // namespace pipewright
