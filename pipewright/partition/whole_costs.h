#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pipewright {

__extension__ using uint128 = unsigned __int128;

/// Costs as whole multiples of one power of ten, so that sums are exact and ties are ties: as
/// doubles, 0.1 + 0.2 and 0.3 differ, and so do two ways of adding up equal layers.
///
/// A cost is read as the shortest decimal that names its double, which is what a person or a file
/// wrote. Exact where the costs span at most 38 decimal digits less those of the number of layers
/// (33 for 10,000 layers); what is smaller than the last of them is rounded to it.
struct WholeCosts {
  std::vector<uint128> layers;
  int exponent = 0;  // a cost is its whole number * 10^exponent

  /// The double nearest to `units` * 10^exponent; infinite where no double is that large.
  double value(uint128 units) const;
};

/// Costs must be finite and >= 0. The sum of the result is less than 2^127.
WholeCosts to_whole(std::span<const double> costs);

/// The same costs in a unit so large that they add up to at most `most_total` (>= the number of
/// layers), for arithmetic with fewer bits. Equal costs stay equal; nothing changes where they fit.
std::vector<std::uint64_t> shrink(const WholeCosts& costs, std::uint64_t most_total);

/// Sums before each layer and after the last: one more than there are layers, from 0 on.
template <typename T>
std::vector<T> prefix_sums(const std::vector<T>& layers) {
  std::vector<T> sums(layers.size() + 1, T{0});
  for (std::size_t i = 0; i < layers.size(); ++i) sums[i + 1] = sums[i] + layers[i];
  return sums;
}

}  // namespace pipewright
