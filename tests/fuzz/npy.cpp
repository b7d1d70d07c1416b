// Fuzzes .npy files: of one that is accepted every byte is in the header or the array, and its
// header is written to one that reads to the same.
#include "pipewright/input/npy.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/safetensors.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

void check(std::string_view head, std::int64_t file_bytes) {
  std::optional<ArrayLayout> layout;
  try {
    layout = parse_npy_header(head, file_bytes, "fuzz");
  } catch (const InvalidArgument&) {
    return;
  }
  const auto bytes = tensor_bytes(layout->dtype, layout->shape);
  fuzz::require(bytes.has_value() && layout->data_start + *bytes == file_bytes,
                "header and array are not the file");
  const std::string written = npy_head(*layout);
  layout->data_start = static_cast<std::int64_t>(written.size());
  const ArrayLayout again = parse_npy_header(written, layout->data_start + *bytes, "fuzz");
  fuzz::require(again == *layout, "a header reads back as another");
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto bytes = static_cast<std::int64_t>(size);
  pipewright::check(file, bytes);
  // Most changes leave a file whose size is wrong. So that they get further: as a larger one.
  for (const std::int64_t more : {1, 4, 24, 64}) pipewright::check(file, bytes + more);
  return 0;
}
