#pragma once

#include <vector>

#include "pipewright/partition/whole_costs.h"

namespace pipewright {

/// Of all splits into `num_stages` non-empty stages of which none costs more than `bound` (at least
/// least_bottleneck's): the one with the least sum of squared stage costs, then of squared layer
/// counts. Returns the layers by stage.
///
/// The squares are exact where the costs' whole numbers add up to at most 2^59 / layers (5 * 10^13
/// for 10,000 layers); larger ones are rounded to that many steps. The bound is kept exactly either
/// way. O(layers * log(layers)) for each of at most 127 bits, mostly far fewer.
std::vector<int> most_balanced(const WholeCosts& costs, std::size_t num_stages, uint128 bound);

}  // namespace pipewright
