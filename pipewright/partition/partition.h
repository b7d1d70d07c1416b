#pragma once

#include <span>
#include <vector>

namespace pipewright {

/// Layers split into consecutive stages.
struct Partition {
  std::vector<int> sizes;  // layers by stage, each at least 1
  double bottleneck = 0;   // the cost of the heaviest stage
};

/// Splits layers of the given costs (finite, >= 0) into `num_stages` non-empty stages with the
/// least possible bottleneck. Among the splits that reach it: the one with the least sum of squared
/// stage costs, then of squared layer counts, so that the rest is balanced too.
///
/// Costs count as the decimals they print as, and their sums are exact (see WholeCosts): 0.1 + 0.2
/// ties with 0.3. 10,000 layers into 1,024 stages take 5 to 200 ms. Throws InvalidArgument for no
/// layers, fewer layers than stages, a bad cost, or a bottleneck that is more than a double holds.
Partition partition_by_bottleneck(std::span<const double> costs, int num_stages);

}  // namespace pipewright
