#include "pipewright/partition/partition.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "pipewright/base/error.h"
#include "pipewright/partition/balance.h"
#include "pipewright/partition/bottleneck.h"
#include "pipewright/partition/whole_costs.h"

namespace pipewright {
namespace {

void check_sizes(std::size_t num_layers, int num_stages) {
  if (num_layers == 0) {
    throw InvalidArgument("partition", "there are no layers to split; give at least one cost");
  }
  std::string advice;
  if (num_stages < 1) {
    advice = "1 or more";
  } else if (num_layers < static_cast<std::size_t>(num_stages)) {
    advice = num_layers == 1 ? "1" : fmt::format("{} or fewer", num_layers);
  } else {
    return;
  }
  throw InvalidArgument("partition",
                        fmt::format("cannot split {} layer{} into {} stages; use --stages {}",
                                    num_layers, num_layers == 1 ? "" : "s", num_stages, advice));
}

void check_costs(std::span<const double> costs) {
  for (std::size_t layer = 0; layer < costs.size(); ++layer) {
    if (std::isfinite(costs[layer]) && costs[layer] >= 0) continue;
    throw InvalidArgument(
        "partition",
        fmt::format(
            "the cost of layer {} (counted from 0) is {}; costs must be finite and not negative",
            layer, costs[layer]));
  }
}

}  // namespace

Partition partition_by_bottleneck(std::span<const double> costs, int num_stages) {
  check_sizes(costs.size(), num_stages);
  check_costs(costs);
  const WholeCosts whole = to_whole(costs);
  const auto count = static_cast<std::size_t>(num_stages);
  const uint128 bound = least_bottleneck(prefix_sums(whole.layers), count);
  // The bound is least, so some stage of every split within it weighs exactly that.
  Partition partition{most_balanced(whole, count, bound), whole.value(bound)};
  if (!std::isfinite(partition.bottleneck)) {
    throw InvalidArgument("partition",
                          "the cost of the heaviest stage is more than a double holds; "
                          "use a larger unit for the costs");
  }
  return partition;
}

}  // namespace pipewright
