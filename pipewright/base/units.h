#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pipewright {

/// Reads `1024`, `512MiB`, `8GiB`, `1.5GB`: a count of bytes. Units: B, KB, MB, GB, TB (powers of
/// 1000) and KiB, MiB, GiB, TiB (powers of 1024). Throws InvalidArgument naming `what` otherwise.
std::int64_t parse_bytes(std::string_view text, std::string_view what);

/// The shortest of B, KiB, MiB, GiB, TiB with at most three significant decimals: `1.5 GiB`.
std::string format_bytes(double bytes);

/// Reads a whole number in [least, most]; throws InvalidArgument naming `what` otherwise.
std::int64_t parse_integer(std::string_view text, std::string_view what, std::int64_t least,
                           std::int64_t most);

/// Reads a finite number >= 0, as times and costs are; throws InvalidArgument naming `what`
/// otherwise.
double parse_non_negative(std::string_view text, std::string_view what);

/// A number as people write it: no trailing zeros, at most six significant digits.
std::string format_number(double value);

/// `seconds` with the unit that reads best: 1.25 s, 3.1 ms, 12 us.
std::string format_seconds(double seconds);

}  // namespace pipewright
