#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipewright/checkpoint/dtype.h"
#include "pipewright/input/file.h"

namespace pipewright {

/// How the elements of an array lie in a file.
struct ArrayLayout {
  DType dtype = DType::kF32;
  bool big_endian = false;
  bool column_major = false;  // Fortran's order: the first index moves fastest
  std::vector<std::int64_t> shape;
  std::int64_t data_start = 0;  // in bytes, from the file's first

  friend bool operator==(const ArrayLayout&, const ArrayLayout&) = default;
};

/// An array in a file (.npy, IDX, safetensors), a row at a time: a row is everything at one index
/// of the first dimension. Only the rows that are asked for are read, but for arrays in Fortran's
/// order, whose rows lie scattered: those are read whole when they are opened. Several threads may
/// read at once.
class ArrayFile {
 public:
  /// The layout has been held against the file's size. Throws InvalidArgument for an array without
  /// dimensions or without rows.
  ArrayFile(DataFile file, ArrayLayout layout);

  const std::string& path() const { return file_.path(); }
  const ArrayLayout& layout() const { return layout_; }
  std::int64_t rows() const { return layout_.shape.front(); }
  std::span<const std::int64_t> row_shape() const { return std::span(layout_.shape).subspan(1); }

  /// The type of what read() gives: the file's, but for unsigned numbers of 2, 4 and 8 bytes, which
  /// come as signed ones of 4, 8 and 8 bytes, since tensors have no such types.
  DType dtype() const;
  std::int64_t row_bytes() const;  // of what read() gives

  /// Fills `into`, of row_bytes(), with a row in this machine's byte order, last index fastest.
  /// Throws InvalidArgument with the place in the file where an unsigned number is 2^63 or more.
  void read(std::int64_t row, std::span<std::byte> into) const;

 private:
  void read_column_major();
  std::vector<std::byte> raw_row(std::int64_t row) const;

  DataFile file_;
  ArrayLayout layout_;
  std::int64_t row_elements_ = 1;
  std::vector<std::byte> whole_;  // of a column-major array, row by row, as in the file otherwise
};

/// A .npy file: versions 1 to 3, numbers and booleans, either byte order.
ArrayFile open_npy(const std::string& path);

/// An IDX file, as MNIST's.
ArrayFile open_idx(const std::string& path);

/// One tensor of a safetensors file.
ArrayFile open_safetensors(const std::string& path, const std::string& name);

}  // namespace pipewright
