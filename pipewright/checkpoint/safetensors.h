#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/checkpoint/dtype.h"
#include "pipewright/checkpoint/storage.h"

namespace pipewright {

// A safetensors file:
//
//     8 bytes   N, little-endian
//     N bytes   {"__metadata__": {"format": "pt"},
//                "embed.weight": {"dtype": "F32", "shape": [65, 8], "data_offsets": [0, 2080]},
//                ...}
//               and spaces, so that the data begins at a multiple of 8
//     the rest  the tensors' bytes: row by row, little-endian, no byte unused or used twice
//
// The reader takes nothing on trust: whatever such a file claims is held against its size.

/// Larger headers are refused, as other readers do.
inline constexpr std::int64_t kMostHeaderBytes = 100'000'000;

/// More dimensions than any tensor library has.
inline constexpr std::size_t kMostDimensions = 64;

using SafetensorsMetadata = std::map<std::string, std::string>;

/// What a file says of one tensor.
struct TensorRecord {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // in bytes, from the first byte of the data
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
  friend bool operator==(const TensorRecord&, const TensorRecord&) = default;
};

struct SafetensorsHeader {
  std::vector<TensorRecord> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;

  std::int64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
  friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

/// The bytes such a tensor takes; none where a dimension is negative or they are more than 2^63
/// - 1.
std::optional<std::int64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape);

/// The first bytes of a file, up to its data: the length and the padded JSON. Throws
/// InvalidArgument naming `path` where a name is no UTF-8.
std::string safetensors_head(const SafetensorsHeader& header, const std::string& path);

/// Reads a header's JSON (without the 8 bytes before it) of a file with `data_bytes` after it.
/// Throws InvalidArgument naming `path` and what is wrong.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                           const std::string& path);

/// The length of the JSON that a file's first 8 bytes give, held against the file's size. Throws
/// InvalidArgument naming `path`.
std::int64_t safetensors_json_bytes(std::span<const std::byte, 8> first, std::int64_t file_bytes,
                                    const std::string& path);

/// A file being read, a tensor at a time. It is read, not mapped: a mapped file that is cut short
/// meanwhile would kill the process. Several threads may read at once.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws InvalidArgument naming the file and what is wrong.
  explicit SafetensorsFile(const std::string& path, Links links = Links::kRefuse);

  const SafetensorsHeader& header() const { return header_; }
  std::int64_t data_start() const { return data_start_; }  // the first byte of the data

  /// The tensor of that name, or nullptr.
  const TensorRecord* find(std::string_view name) const;

  /// Fills `into`, which has as many bytes as the tensor; `tensor` is one of this file's.
  void read(const TensorRecord& tensor, std::span<std::byte> into) const;

 private:
  InputFile file_;
  std::int64_t data_start_ = 0;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> places_;  // by name, in header_.tensors
};

/// A tensor to be written: the caller's bytes, row by row, little-endian.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

struct WrittenFile {
  std::int64_t bytes = 0;
  std::int64_t tensor_bytes = 0;  // without the header
  std::string sha256;
};

/// Writes a new file straight from the tensors' bytes, and has it on the disk when it returns. The
/// file depends on what the tensors are, not on their order: they lie by element size, largest
/// first, then by name, so that each is aligned. Throws InvalidArgument for tensors that no file
/// can hold (a name twice, bytes that do not fit the shape), StorageError where the disk refuses;
/// the file is then removed.
WrittenFile write_safetensors(const std::string& path, std::span<const TensorView> tensors,
                              const SafetensorsMetadata& metadata = {});

}  // namespace pipewright
