#include "pipewright/partition/bottleneck.h"

#include <algorithm>

namespace pipewright {
namespace {

/// Can the layers be split so that no stage costs more than `bound` (>= every layer)? Filling
/// stages from the left leaves the fewest; a split into fewer stages can always be split further,
/// since costs are not negative and there are enough layers.
bool fits(std::span<const uint128> sums, std::size_t num_stages, uint128 bound) {
  auto end_of_stage = sums.begin();
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    const uint128 reach = *end_of_stage + bound;
    if (reach >= sums.back()) return true;
    end_of_stage = std::upper_bound(end_of_stage, sums.end(), reach) - 1;
  }
  return false;
}

}  // namespace

uint128 least_bottleneck(std::span<const uint128> sums, std::size_t num_stages) {
  uint128 largest = 0;
  for (std::size_t i = 1; i < sums.size(); ++i) largest = std::max(largest, sums[i] - sums[i - 1]);

  // No split is below the mean or the largest layer. Filling stages up to the mean and letting the
  // last layer stick out is a split that does not exceed their sum.
  const uint128 mean = (sums.back() + num_stages - 1) / num_stages;
  uint128 least = std::max(largest, mean);
  uint128 most = mean + largest;
  while (least < most) {
    const uint128 middle = least + (most - least) / 2;
    if (fits(sums, num_stages, middle)) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return least;
}

}  // namespace pipewright
