// Fuzzes lines of Criteo's form: what is accepted has the columns it should, finite numbers and ids
// within the buckets; what is not comes with words.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pipewright/input/clicks.h"
#include "tests/fuzz/properties.h"

namespace pipewright {
namespace {

void check(std::string_view line, const CriteoOptions& options) {
  ClickRow row;
  if (const auto why = parse_criteo(line, options, &row)) {
    fuzz::require(!why->empty() && why->size() < 500, "no words for a bad line");
    return;
  }
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  fuzz::require(tabs == options.numeric + options.fields, "a line with other columns");
  fuzz::require(row.label == 0 || row.label == 1, "a label that is none");
  fuzz::require(static_cast<int>(row.numeric.size()) == options.numeric, "other numbers");
  fuzz::require(static_cast<int>(row.fields.size()) == options.fields, "other fields");
  for (const float number : row.numeric) fuzz::require(std::isfinite(number), "no finite number");
  for (const std::int64_t id : row.fields) {
    fuzz::require(id >= 0 && id < options.buckets, "an id beyond the buckets");
  }
}

}  // namespace
}  // namespace pipewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pipewright::check;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    check(line, {.numeric = 2, .fields = 2, .buckets = 2, .logarithms = false});
    check(line, {.numeric = 3, .fields = 1, .buckets = 1000, .logarithms = true});
    check(line, {});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
