// Fuzzes profile files: what parses is written to JSON that parses to the same profile.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/cost/profile.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

std::optional<Profile> read(std::string_view text) {
  try {
    return parse_profile(text, "fuzz");
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipewright;
  const auto profile = read({reinterpret_cast<const char*>(data), size});
  if (!profile) return 0;
  fuzz::require(parse_profile(to_json(*profile), "fuzz") == *profile,
                "a profile reads back as another");
  // One stage of all the layers: sums of costs are costs.
  for (const StageCost& cost : stage_costs(*profile, {static_cast<int>(profile->layers.size())})) {
    fuzz::require(std::isfinite(cost.forward) && cost.forward >= 0, "a stage's cost is no cost");
  }
  return 0;
}
