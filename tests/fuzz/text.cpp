// Fuzzes the text form of a Program: what parses prints to text that parses to the same Program.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pipewright/base/error.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

std::optional<Program> read(std::string_view text) {
  try {
    return parse_program(text);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipewright;
  const auto program = read({reinterpret_cast<const char*>(data), size});
  if (!program) return 0;
  fuzz::require(parse_program(to_text(*program)) == *program, "a program reads back as another");
  fuzz::check_program(*program);
  return 0;
}
