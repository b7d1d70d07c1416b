#include "pipewright/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 10> kByteUnits = {{{"", 1.0},
                                                                             {"B", 1.0},
                                                                             {"KB", 1e3},
                                                                             {"MB", 1e6},
                                                                             {"GB", 1e9},
                                                                             {"TB", 1e12},
                                                                             {"KiB", 0x1p10},
                                                                             {"MiB", 0x1p20},
                                                                             {"GiB", 0x1p30},
                                                                             {"TiB", 0x1p40}}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view what) {
  const std::string_view body = trimmed(text);
  double number = 0;
  const auto [end, status] = std::from_chars(body.data(), body.data() + body.size(), number);
  const std::string_view unit = trimmed(body.substr(static_cast<std::size_t>(end - body.data())));
  for (const auto& [name, factor] : kByteUnits) {
    if (status != std::errc() || unit != name) continue;
    const double bytes = number * factor;
    if (!(bytes >= 0) || bytes > 0x1p62) break;
    return static_cast<std::int64_t>(std::llround(bytes));
  }
  throw InvalidArgument(
      what, fmt::format("'{}' is no number of bytes; write it as 1048576, 512MiB or 8GiB", text));
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", bytes, kNames[unit]);
}

std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t least,
                           std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw InvalidArgument(
        what, fmt::format("'{}' is not a whole number from {} to {}", text, least, most));
  }
  return value;
}

double parse_non_negative(std::string_view text, std::string_view what) {
  const std::string_view body = trimmed(text);
  double value = 0;
  const auto [end, status] = std::from_chars(body.data(), body.data() + body.size(), value);
  const bool whole = status == std::errc() && end == body.data() + body.size();
  if (!whole || !std::isfinite(value) || value < 0) {
    throw InvalidArgument(what, fmt::format("'{}' is not a finite number of 0 or more", text));
  }
  return value;
}

std::string format_number(double value) { return fmt::format("{:.6g}", value); }

std::string format_seconds(double seconds) {
  const double size = std::abs(seconds);
  if (size >= 1 || size == 0) return fmt::format("{:.4g} s", seconds);
  if (size >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

}  // namespace pipewright
