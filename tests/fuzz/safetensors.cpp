// Fuzzes safetensors files: of one that is accepted every byte belongs to one tensor, and its
// header is written to one that reads to the same.
#include "pipewright/checkpoint/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "pipewright/base/error.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

/// As SafetensorsFile does, from memory.
SafetensorsHeader read_file(std::string_view file) {
  const auto first = std::as_bytes(std::span(file)).first<8>();
  const auto bytes = static_cast<std::int64_t>(file.size());
  const std::int64_t json_bytes = safetensors_json_bytes(first, bytes, "fuzz");
  const std::string_view json = file.substr(8, static_cast<std::size_t>(json_bytes));
  return parse_safetensors_header(json, bytes - 8 - json_bytes, "fuzz");
}

/// Most changes to a file leave it with a length that is wrong. So that they get further than that:
/// all but the first 8 bytes as the header of a file with as many bytes of data as the first tells.
SafetensorsHeader read_header(std::string_view file) {
  return parse_safetensors_header(file.substr(8), static_cast<unsigned char>(file[0]), "fuzz");
}

void check_cover(const SafetensorsHeader& header) {
  std::int64_t covered = 0;
  for (const TensorRecord& tensor : header.tensors) {
    fuzz::require(tensor.begin == covered, "bytes are unused or used twice");
    fuzz::require(tensor_bytes(tensor.dtype, tensor.shape) == tensor.bytes(),
                  "a tensor's bytes do not fit its shape");
    covered = tensor.end;
  }
}

void check(std::string_view file, SafetensorsHeader (*read)(std::string_view)) {
  std::optional<SafetensorsHeader> header;
  try {
    header = read(file);
  } catch (const InvalidArgument&) {
    return;
  }
  check_cover(*header);
  const std::string head = safetensors_head(*header, "fuzz");
  fuzz::require(head.size() % 8 == 0, "the data is not aligned");
  const auto again =
      parse_safetensors_header(std::string_view(head).substr(8), header->data_bytes(), "fuzz");
  fuzz::require(again == *header, "a header reads back as another");
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipewright;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  if (size < 8) return 0;
  check(file, read_file);
  check(file, read_header);
  return 0;
}
