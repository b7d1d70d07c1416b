#pragma once

#include <span>

#include "pipewright/partition/whole_costs.h"

namespace pipewright {

/// The least bottleneck of any split into `num_stages` non-empty stages. `sums` are prefix_sums of
/// at least `num_stages` layers. O(stages * log(layers)) for each of at most 127 bits.
uint128 least_bottleneck(std::span<const uint128> sums, std::size_t num_stages);

}  // namespace pipewright
