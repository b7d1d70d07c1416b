#include "pipewright/train/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "pipewright/base/error.h"
#include "pipewright/partition/partition.h"
#include "pipewright/transport/environment.h"

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

double parameters_of(const std::vector<TensorOutline>& layer) {
  double count = 0;
  for (const TensorOutline& tensor : layer)
    count += tensor.is_parameter ? static_cast<double>(tensor.numel()) : 0;
  return count;
}

torch::Device existing(torch::Device device) {
  if (device.is_cpu()) return torch::Device(torch::kCPU);
  if (!device.is_cuda())
    refuse(fmt::format("device '{}' is not supported; use cpu or cuda:N", device.str()));
  const int count = static_cast<int>(torch::cuda::device_count());
  const int index = device.has_index() ? device.index() : 0;
  if (index >= count)
    refuse(
        fmt::format("there is no device '{}': LibTorch sees {} CUDA devices", device.str(), count));
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

torch::Device own_gpu(int local_rank) {
  const int count = static_cast<int>(torch::cuda::device_count());
  if (local_rank >= count) {
    refuse(
        fmt::format("devices = cuda is a GPU for each process of a machine; this is number {} of "
                    "its machine (LOCAL_RANK) and LibTorch sees {} CUDA devices; start fewer, or "
                    "write cuda:N",
                    local_rank, count));
  }
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(local_rank)};
}

/// "cuda" alone is each process's own.
torch::Device parse_device(const std::string& name, const Strategy& strategy) {
  try {
    if (name == "cuda" && strategy.transport != "threads")
      return own_gpu(read_environment().local_rank);
    return existing(torch::Device(name));
  } catch (const c10::Error&) {
    refuse(fmt::format("'{}' is no device; use cpu or cuda:N", name));
  }
}

/// The device that the guards of a stage's layers name.
std::optional<torch::Device> guard_device(const Sequence& model, const StageLayout& layout,
                                          std::size_t stage) {
  std::optional<torch::Device> device;
  for (std::size_t i = layout.first_layer[stage]; i < layout.first_layer[stage + 1]; ++i) {
    const Layer& layer = model.layers()[i];
    if (!layer.device) continue;
    if (device && *device != *layer.device) {
      refuse(
          fmt::format("layer '{}' is guarded to {}, others of its stage to {}; a stage has one "
                      "device",
                      layer.name, layer.device->str(), device->str()));
    }
    device = layer.device;
  }
  return device;
}

std::optional<torch::Device> device_of_parameters(const Outline& outline, std::size_t first,
                                                  std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    for (const TensorOutline& tensor : outline[i])
      if (tensor.is_parameter) return tensor.device;
  }
  return std::nullopt;
}

/// One tensor cannot be on two devices.
void check_tied(const Sequence& model, const Outline& outline, const StageLayout& layout) {
  std::unordered_map<int, std::size_t> first_use;
  for (std::size_t i = 0; i < model.size(); ++i) {
    for (const TensorOutline& tensor : outline[i]) {
      if (!tensor.is_parameter) continue;
      const auto first = first_use.try_emplace(tensor.number, i).first->second;
      const auto here = layout.device_of(layout.stage_of(i));
      const auto there = layout.device_of(layout.stage_of(first));
      if (here == there) continue;
      refuse(
          fmt::format("layers '{}' and '{}' share a parameter, but are on {} and {}; put both on "
                      "one device",
                      model.layers()[first].name, model.layers()[i].name, there.str(), here.str()));
    }
  }
}

}  // namespace

std::vector<int> stage_sizes(const Sequence& model, const Outline& outline,
                             const Strategy& strategy, int num_stages) {
  const auto& layers = model.layers();
  if (static_cast<int>(layers.size()) < num_stages) {
    refuse(fmt::format("cannot split {} layers into {} stages; use fewer ranks or chunks",
                       layers.size(), num_stages));
  }
  if (!strategy.sizes.empty()) return sizes_as_asked(model, strategy.sizes, num_stages);
  if (std::any_of(layers.begin(), layers.end(),
                  [](const Layer& layer) { return layer.stage.has_value(); })) {
    return sizes_by_guards(model, num_stages);
  }
  const bool hinted =
      std::all_of(layers.begin(), layers.end(), [](const Layer& l) { return l.options.cost > 0; });
  std::vector<double> costs;
  for (std::size_t i = 0; i < layers.size(); ++i)
    costs.push_back(hinted ? layers[i].options.cost : parameters_of(outline[i]));
  return partition_by_bottleneck(costs, num_stages).sizes;
}

std::vector<torch::Device> stage_devices(const Sequence& model, const Outline& outline,
                                         const Strategy& strategy, const StageLayout& layout) {
  const auto& given = strategy.devices;
  if (given.size() > 1 && static_cast<int>(given.size()) != strategy.ranks) {
    refuse(fmt::format("devices ({}) must be one, or one for each of the {} ranks",
                       fmt::join(given, ", "), strategy.ranks));
  }
  const auto anywhere = device_of_parameters(outline, 0, model.size());
  StageLayout placed = layout;
  placed.devices.clear();
  for (std::size_t stage = 0; stage < layout.placement.size(); ++stage) {
    const auto rank = static_cast<std::size_t>(layout.placement[stage]);
    const auto guard = guard_device(model, layout, stage);
    const auto own =
        device_of_parameters(outline, layout.first_layer[stage], layout.first_layer[stage + 1]);
    if (guard) {
      placed.devices.push_back(existing(*guard));
    } else if (!given.empty()) {
      placed.devices.push_back(parse_device(given.size() == 1 ? given[0] : given[rank], strategy));
    } else {
      placed.devices.push_back(own ? *own : anywhere.value_or(torch::kCPU));
    }
  }
  check_tied(model, outline, placed);
  return placed.devices;
}

}  // namespace pipewright
