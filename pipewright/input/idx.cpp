#include "pipewright/input/idx.h"

#include <fmt/format.h>

#include <optional>

#include "pipewright/checkpoint/safetensors.h"

namespace pipewright {
namespace {

int byte_at(std::string_view head, std::size_t at) { return static_cast<unsigned char>(head[at]); }

std::optional<DType> type_of(int code) {
  switch (code) {
    case 0x08: return DType::kU8;
    case 0x09: return DType::kI8;
    case 0x0b: return DType::kI16;
    case 0x0c: return DType::kI32;
    case 0x0d: return DType::kF32;
    case 0x0e: return DType::kF64;
    default: return std::nullopt;
  }
}

void check_magic(std::string_view head, const std::string& path) {
  if (head.starts_with("\x1f\x8b")) {
    refuse_data(path, 0, "the file is compressed by gzip; unpack it with gunzip first");
  }
  if (head.size() < 4) {
    refuse_data(path, static_cast<std::int64_t>(head.size()), "the file ends within its header");
  }
  if (byte_at(head, 0) != 0 || byte_at(head, 1) != 0) {
    refuse_data(path, 0, "this is no IDX file: its first two bytes are not 0");
  }
}

}  // namespace

ArrayLayout parse_idx_header(std::string_view head, std::int64_t file_bytes,
                             const std::string& path) {
  check_magic(head, path);
  const auto dtype = type_of(byte_at(head, 2));
  if (!dtype) {
    refuse_data(path, 2,
                fmt::format("element type {}; known are 8, 9 and 11 to 14", byte_at(head, 2)));
  }
  const auto dimensions = static_cast<std::size_t>(byte_at(head, 3));
  if (dimensions == 0 || dimensions > kMostDimensions) {
    refuse_data(path, 3,
                fmt::format("{} dimensions; there must be 1 to {}", dimensions, kMostDimensions));
  }
  ArrayLayout layout;
  layout.dtype = *dtype;
  layout.big_endian = dtype_bytes(*dtype) > 1;
  layout.data_start = static_cast<std::int64_t>(4 + 4 * dimensions);
  if (static_cast<std::int64_t>(head.size()) < layout.data_start) {
    refuse_data(path, file_bytes,
                fmt::format("the file ends within the sizes of its {} dimensions", dimensions));
  }
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::int64_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | byte_at(head, 4 + 4 * d + i);
    layout.shape.push_back(size);
  }
  const auto bytes = tensor_bytes(layout.dtype, layout.shape);
  if (!bytes || *bytes != file_bytes - layout.data_start) {
    refuse_data(path, 4,
                fmt::format("the sizes call for {} bytes of data, the file has {}; it was cut "
                            "short or is damaged",
                            bytes ? fmt::format("{}", *bytes) : "more than 2^63",
                            file_bytes - layout.data_start));
  }
  return layout;
}

}  // namespace pipewright
