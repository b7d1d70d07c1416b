#include "pipewright/train/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "pipewright/base/error.h"
#include "pipewright/partition/partition.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

std::vector<int> sizes_as_asked(const Sequence& model, const std::vector<int>& sizes,
                                int num_stages) {
  const int total = std::accumulate(sizes.begin(), sizes.end(), 0);
  const bool positive = std::all_of(sizes.begin(), sizes.end(), [](int size) { return size > 0; });
  if (static_cast<int>(sizes.size()) != num_stages || !positive ||
      total != static_cast<int>(model.size())) {
    refuse(
        fmt::format("sizes ({}) must be {} positive numbers that add up to the model's {} layers",
                    fmt::join(sizes, ", "), num_stages, model.size()));
  }
  return sizes;
}

std::vector<int> sizes_by_guards(const Sequence& model, int num_stages) {
  std::vector<int> sizes(static_cast<std::size_t>(num_stages));
  for (const Layer& layer : model.layers()) {
    if (!layer.stage)
      refuse(fmt::format("layer '{}' is in no stage guard, others are; put every layer in one",
                         layer.name));
    if (*layer.stage >= num_stages) {
      refuse(fmt::format("layer '{}' is in stage {}, but there are {} stages", layer.name,
                         *layer.stage, num_stages));
    }
    ++sizes[static_cast<std::size_t>(*layer.stage)];
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    if (sizes[static_cast<std::size_t>(stage)] == 0)
      refuse(fmt::format("stage {} of {} has no layer", stage, num_stages));
  }
  return sizes;
}

double parameters_of(const Layer& layer) {
  double count = 0;
  if (!layer.module) return count;
  for (const auto& parameter : layer.module->parameters())
    count += static_cast<double>(parameter.numel());
  return count;
}

}  // namespace

std::vector<int> stage_sizes(const Sequence& model, const Strategy& strategy, int num_stages) {
  const auto& layers = model.layers();
  if (!strategy.sizes.empty()) return sizes_as_asked(model, strategy.sizes, num_stages);
  if (std::any_of(layers.begin(), layers.end(),
                  [](const Layer& layer) { return layer.stage.has_value(); })) {
    return sizes_by_guards(model, num_stages);
  }
  const bool hinted =
      std::all_of(layers.begin(), layers.end(), [](const Layer& l) { return l.options.cost > 0; });
  std::vector<double> costs;
  for (const Layer& layer : layers)
    costs.push_back(hinted ? layer.options.cost : parameters_of(layer));
  return partition_by_bottleneck(costs, num_stages).sizes;
}

}  // namespace pipewright
