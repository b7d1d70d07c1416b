// Fuzzes config files and overrides: whatever the bytes, they are refused in words or read; what is
// read is written to a config that reads to the same.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/config/read.h"
#include "pipewright/config/write.h"
#include "tests/config/sample.h"
#include "tests/fuzz/properties.h"

namespace pipewright::config {
namespace {

constexpr std::string_view kOverride = "--set ";

/// Lines at the beginning that start with `--set ` are overrides, the rest is the file.
std::vector<std::string> take_overrides(std::string_view* text) {
  std::vector<std::string> overrides;
  while (text->starts_with(kOverride)) {
    text->remove_prefix(kOverride.size());
    const std::size_t end = std::min(text->find('\n'), text->size());
    overrides.emplace_back(text->substr(0, end));
    text->remove_prefix(std::min(end + 1, text->size()));
  }
  return overrides;
}

std::optional<Config> read_or_refuse(std::string_view text,
                                     const std::vector<std::string>& overrides,
                                     const Known& known) {
  try {
    return read_text(text, "fuzz", overrides, known);
  } catch (const ConfigError& error) {
    fuzz::require(!error.problems().empty(), "a config is refused for nothing");
    for (const std::string& problem : error.problems()) {
      fuzz::require(problem.starts_with("fuzz:") || problem.starts_with(kOverride),
                    "a problem has no place");
    }
    return std::nullopt;
  }
}

void check(std::string_view text, const std::vector<std::string>& overrides, const Known& known) {
  const auto config = read_or_refuse(text, overrides, known);
  if (!config) return;
  fuzz::require(read_text(to_toml(*config), "again", {}, known) == *config,
                "a config reads back as another");
  fuzz::require(read_text(commented_toml(*config, known, "a"), "again", {}, known) == *config,
                "a commented config reads back as another");
}

}  // namespace
}  // namespace pipewright::config

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pipewright;
  static const config::Known kKnown = config::sample_known();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> overrides = config::take_overrides(&text);
  config::check(text, overrides, kKnown);
  config::check(text, overrides, {});
  return 0;
}
