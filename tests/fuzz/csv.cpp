// Fuzzes the CSV of torch.distributed.pipelining: what reads and can run is written to CSV that
// reads to the same Program.
#include "pipewright/ir/csv.h"

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
    return read_csv(text).program;
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
  if (fuzz::is_valid(*program)) {
    fuzz::require(read_csv(write_csv(*program)).program == *program,
                  "a program reads back from its CSV as another");
  }
  fuzz::check_program(*program);
  return 0;
}
