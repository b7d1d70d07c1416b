#include "pipewright/partition/whole_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <string>

namespace pipewright {
namespace {

/// digits * 10^exponent.
struct Decimal {
  std::uint64_t digits = 0;
  int exponent = 0;
};

/// The shortest decimal that reads back as `value`: at most 17 digits.
Decimal shortest_decimal(double value) {
  std::array<char, 32> text{};
  const char* end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific)
          .ptr;
  Decimal decimal;
  int decimals = 0;
  bool after_point = false;
  const char* at = text.data();
  for (; *at != 'e'; ++at) {
    if (*at == '.') {
      after_point = true;
      continue;
    }
    decimal.digits = decimal.digits * 10 + static_cast<std::uint64_t>(*at - '0');
    if (after_point) ++decimals;
  }
  ++at;
  if (*at == '+') ++at;  // from_chars knows no plus
  std::from_chars(at, end, decimal.exponent);
  decimal.exponent -= decimals;
  return decimal;
}

uint128 power_of_ten(int exponent) {
  uint128 power = 1;
  for (; exponent > 0; --exponent) power *= 10;
  return power;
}

int num_digits(std::uint64_t number) {
  int digits = 0;
  for (; number > 0; number /= 10) ++digits;
  return digits;
}

/// The exponent of the unit: that of the finest digit, unless the sum would not fit then.
int unit_exponent(const std::vector<Decimal>& decimals) {
  int finest = std::numeric_limits<int>::max();
  int above_largest = std::numeric_limits<int>::min();
  for (const Decimal& decimal : decimals) {
    if (decimal.digits == 0) continue;
    finest = std::min(finest, decimal.exponent);
    above_largest = std::max(above_largest, decimal.exponent + num_digits(decimal.digits));
  }
  if (finest == std::numeric_limits<int>::max()) return 0;
  // Each cost is below 10^kept units, and 10^38 < 2^127.
  const int kept = 38 - num_digits(decimals.size());
  return std::max(finest, above_largest - kept);
}

uint128 in_units(Decimal decimal, int exponent) {
  const int shift = decimal.exponent - exponent;
  if (decimal.digits == 0 || shift < -18) return 0;  // 17 digits: less than half a unit
  if (shift >= 0) return decimal.digits * power_of_ten(shift);
  const uint128 unit = power_of_ten(-shift);
  return (decimal.digits + unit / 2) / unit;
}

}  // namespace

double WholeCosts::value(uint128 units) const {
  const std::string text = fmt::format("{}e{}", units, exponent);
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc::result_out_of_range) {
    return exponent > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  }
  return number;
}

WholeCosts to_whole(std::span<const double> costs) {
  std::vector<Decimal> decimals;
  decimals.reserve(costs.size());
  for (const double cost : costs) {
    decimals.push_back(cost == 0 ? Decimal{} : shortest_decimal(cost));  // -0 too
  }
  WholeCosts whole;
  whole.exponent = unit_exponent(decimals);
  whole.layers.reserve(costs.size());
  for (const Decimal& decimal : decimals) {
    whole.layers.push_back(in_units(decimal, whole.exponent));
  }
  return whole;
}

std::vector<std::uint64_t> shrink(const WholeCosts& costs, std::uint64_t most_total) {
  const uint128 total = std::accumulate(costs.layers.begin(), costs.layers.end(), uint128{0});
  int shift = 0;
  // Rounding adds less than 1 a layer.
  if (total > most_total) {
    while ((total >> shift) + costs.layers.size() > most_total && shift < 127) ++shift;
  }
  const uint128 half = shift == 0 ? 0 : uint128{1} << (shift - 1);
  std::vector<std::uint64_t> layers;
  layers.reserve(costs.layers.size());
  for (const uint128 layer : costs.layers) {
    layers.push_back(static_cast<std::uint64_t>((layer + half) >> shift));
  }
  return layers;
}

}  // namespace pipewright
