// Fuzzes a checkpoint's JSON: checkpoint.json (given the checksum that fits, else nothing would get
// beyond that), the index, and the records that travel between processes. What reads is written to
// text that reads to the same.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/manifest.h"
#include "pipewright/checkpoint/text.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

template <typename Read>
auto accepted(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

void check(std::string_view text) {
  if (const auto manifest = accepted([&] { return parse_manifest(sealed(text), "fuzz"); })) {
    fuzz::require(parse_manifest(to_text(*manifest), "fuzz") == *manifest,
                  "a checkpoint.json reads back as another");
    for (const FileEntry& entry : manifest->files) {
      fuzz::require(is_plain_file_name(entry.file) && entry.bytes >= 0, "a file lies elsewhere");
    }
  }
  if (const auto index = accepted([&] { return parse_index(text, "fuzz"); })) {
    fuzz::require(parse_index(to_text(*index), "fuzz") == *index, "an index reads back as another");
    for (const auto& [tensor, file] : index->files) {
      fuzz::require(is_plain_file_name(file), "a file lies elsewhere");
    }
  }
  const auto record = accepted([&] { return parse_file_record(parse_strict_json(text, "fuzz")); });
  if (record) {
    fuzz::require(parse_file_record(to_json(*record)) == *record, "a record reads back as another");
  }
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pipewright::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
