#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pipewright/input/array.h"

namespace pipewright {

// A .npy file:
//
//     6 bytes   \x93NUMPY
//     2 bytes   version 1.0, 2.0 or 3.0
//     2 bytes   N, little-endian (4 bytes from version 2 on)
//     N bytes   {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
//               and spaces and \n, so that the data begins at a multiple of 64
//     the rest  the elements
//
// The reader takes nothing on trust: whatever such a file claims is held against its size. Pickled
// objects are refused, never looked into.

/// Larger headers are refused: those of numbers take about 100 bytes.
inline constexpr std::int64_t kMostNpyHeaderBytes = std::int64_t{1} << 16;

/// Reads the header from `head`, the first bytes of a file of `file_bytes` (all of its first
/// kMostNpyHeaderBytes, or all there are). Throws InvalidArgument naming `path` and the byte.
ArrayLayout parse_npy_header(std::string_view head, std::int64_t file_bytes,
                             const std::string& path);

/// The first bytes of a file of such an array, up to its data; at least `least_bytes`.
std::string npy_head(const ArrayLayout& layout, std::size_t least_bytes = 0);

/// Writes token ids, or other whole numbers, as an array of one dimension, however many come. The
/// file has its name only when finish() returned; without that nothing is left.
class NpyWriter {
 public:
  /// Throws InvalidArgument where the file cannot be made.
  explicit NpyWriter(std::string path);
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter(NpyWriter&&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;
  NpyWriter& operator=(NpyWriter&&) = delete;
  ~NpyWriter();

  void append(std::span<const std::int32_t> numbers);
  void finish();

 private:
  void write(std::string_view bytes, std::int64_t offset);
  [[noreturn]] void fail(int error) const;

  std::string path_;
  std::string unfinished_;  // its name until then
  int fd_ = -1;
  std::int64_t numbers_ = 0;
};

}  // namespace pipewright
