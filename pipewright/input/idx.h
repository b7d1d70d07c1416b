#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipewright/input/array.h"

namespace pipewright {

// An IDX file, as MNIST's:
//
//     2 bytes   0 0
//     1 byte    type: 8 unsigned and 9 signed byte, 11 and 12 whole numbers of 2 and 4 bytes,
//               13 and 14 floating point of 4 and 8 bytes
//     1 byte    D, the dimensions
//     D x 4     their sizes, big-endian
//     the rest  the elements, big-endian, last index fastest

inline constexpr std::int64_t kMostIdxHeaderBytes = 4 + 255 * 4;

/// Reads the header from `head`, the first bytes of a file of `file_bytes` (all of its first
/// kMostIdxHeaderBytes, or all there are). Throws InvalidArgument naming `path` and the byte.
ArrayLayout parse_idx_header(std::string_view head, std::int64_t file_bytes,
                             const std::string& path);

}  // namespace pipewright
