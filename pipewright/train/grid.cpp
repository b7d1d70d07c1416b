#include "pipewright/train/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/transport/gloo.h"
#include "pipewright/transport/inproc.h"
#include "pipewright/transport/nccl.h"
#include "pipewright/transport/ordered_transport.h"
#include "pipewright/transport/shared_transport.h"
#include "pipewright/transport/slow_link.h"

namespace pipewright {
namespace {

/// What a build that lacks a transport needs.
std::string how_to_get(const std::string& transport) {
  if (transport == "gloo" || (transport == "nccl" && !has_gloo())) {
    return "; build it with Gloo's headers (Debian: libgloo-dev, else docs/distributed.md says "
           "where from) for " +
           transport;
  }
  if (transport == "nccl") return "; build it with a LibTorch that has CUDA, and nccl.h, for nccl";
  return {};
}

/// To look for a message before sleeping pays where every rank has a core.
std::chrono::microseconds spin_for(int num_ranks) {
  constexpr std::chrono::microseconds kSpin(2000);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return num_ranks <= std::max(1, cores) ? kSpin : std::chrono::microseconds(0);
}

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

/// One for all trainers of the process, as long as one of them lives.
std::shared_ptr<World> world_of(const Strategy& strategy, const ProcessPlace& place) {
  static std::weak_ptr<World> world;
  if (auto living = world.lock()) return living;
  WorldOptions options;
  options.deadline = std::chrono::duration<double>(strategy.life_deadline_seconds);
  options.address = strategy.address;
  auto made = std::make_shared<World>(place, options);
  world = made;
  return made;
}

/// All processes of a pipeline must be on GPUs, each of them on one alone.
torch::Device own_gpu(const Grid& grid, const Strategy& strategy,
                      const std::vector<torch::Device>& stage_devices,
                      const std::vector<int>& placement) {
  std::optional<torch::Device> own;
  for (std::size_t stage = 0; stage < stage_devices.size(); ++stage) {
    const torch::Device device = stage_devices[stage];
    if (!device.is_cuda()) {
      refuse(
          fmt::format("transport = 'nccl' and stage {} is on {}; NCCL is between GPUs: set devices "
                      "= {{\"cuda\"}}, or use gloo",
                      stage, device.str()));
    }
    if (placement[stage] != grid.rank) continue;
    if (own && *own != device) {
      refuse(
          fmt::format("rank {} has stages on {} and {}; with transport = 'nccl' a process has one "
                      "GPU",
                      grid.rank, own->str(), device.str()));
    }
    own = device;
  }
  const std::chrono::duration<double> deadline(strategy.deadline_seconds);
  check_own_gpus(*grid.world, next_group(), gpu_of_machine(*own), deadline);
  return *own;
}

std::unique_ptr<Transport> process_transport(const Grid& grid, const Strategy& strategy,
                                             std::vector<torch::Device> stage_devices,
                                             const std::vector<int>& placement) {
  const ProcessPlace& place = grid.world->place();
  const std::chrono::duration<double> deadline(strategy.deadline_seconds);
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline);
  std::vector<int> processes;
  for (int rank = 0; rank < grid.ranks; ++rank)
    processes.push_back(grid.replica * grid.ranks + rank);
  std::optional<torch::Device> gpu;
  if (strategy.transport == "nccl") gpu = own_gpu(grid, strategy, stage_devices, placement);
  auto group = make_gloo_group(*grid.world, next_group(), place.rank, place.size, timeout);
  if (!gpu) {
    const bool on_cpu = std::all_of(stage_devices.begin(), stage_devices.end(),
                                    [](torch::Device device) { return device.is_cpu(); });
    auto gloo = std::make_unique<ProcessTransport>(grid.world.get(), std::move(group), processes,
                                                   grid.rank, std::move(stage_devices), deadline);
    if (!strategy.shared_memory || !on_cpu) return gloo;
    return std::make_unique<SharedTransport>(grid.world.get(), std::move(gloo),
                                             std::move(processes), grid.rank, next_group(),
                                             deadline, spin_for(place.size));
  }
  const auto tensors = [&] {
    return make_nccl_group(*grid.world, next_group(), place.rank, place.size);
  };
  TensorGroups groups;
  groups.up = tensors();
  groups.down = tensors();
  return std::make_unique<OrderedTransport>(grid.world.get(), std::move(group), std::move(groups),
                                            std::move(processes), grid.rank, *gpu, stage_devices,
                                            deadline);
}

}  // namespace

std::string next_group() {
  static int number = 0;
  return fmt::format("group{}", number++);
}

std::vector<std::string> transports() {
  std::vector<std::string> names = {"threads"};
  if (has_gloo()) names.emplace_back("gloo");
  if (has_gloo() && has_nccl()) names.emplace_back("nccl");  // what it announces goes over Gloo
  return names;
}

Grid make_grid(const Strategy& strategy) {
  Grid grid;
  grid.ranks = strategy.ranks;
  grid.replicas = strategy.replicas;
  const auto known = transports();
  if (std::find(known.begin(), known.end(), strategy.transport) == known.end()) {
    refuse(fmt::format("transport = '{}'; this build has {}{}", strategy.transport,
                       fmt::join(known, ", "), how_to_get(strategy.transport)));
  }
  if (!(strategy.link_bandwidth >= 0)) {
    refuse(fmt::format("link_bandwidth = {}; use bytes a second, or 0 for as fast as it goes",
                       strategy.link_bandwidth));
  }
  if (strategy.link_bandwidth != 0 && strategy.transport != "threads") {
    refuse(
        fmt::format("link_bandwidth = {} is of ranks that are threads; transport = '{}' has "
                    "links of its own",
                    strategy.link_bandwidth, strategy.transport));
  }
  if (strategy.transport == "threads") {
    if (grid.replicas == 1) return grid;
    refuse(
        fmt::format("replicas = {} are processes; set transport = \"gloo\" and start the program "
                    "with: pipewright launch -n {} -- PROGRAM",
                    grid.replicas, grid.ranks * grid.replicas));
  }
  const ProcessPlace place = read_environment();
  if (!place.launched()) {
    refuse(
        fmt::format("transport = '{}' runs {} processes; start the program with: pipewright "
                    "launch -n {} -- PROGRAM",
                    strategy.transport, grid.ranks * grid.replicas, grid.ranks * grid.replicas));
  }
  if (place.size != grid.ranks * grid.replicas) {
    refuse(fmt::format("ranks = {} and replicas = {} are {} processes; {} started {}", grid.ranks,
                       grid.replicas, grid.ranks * grid.replicas, place.launched_by, place.size));
  }
  grid.world = world_of(strategy, place);
  grid.rank = place.rank % grid.ranks;
  grid.replica = place.rank / grid.ranks;
  return grid;
}

std::unique_ptr<Transport> make_transport(const Grid& grid, const Strategy& strategy,
                                          std::vector<torch::Device> stage_devices,
                                          const std::vector<int>& placement) {
  if (!grid.one_process())
    return process_transport(grid, strategy, std::move(stage_devices), placement);
  const std::chrono::duration<double> deadline(strategy.deadline_seconds);
  std::unique_ptr<Transport> made = std::make_unique<InprocTransport>(
      grid.ranks, std::move(stage_devices), deadline, spin_for(grid.ranks));
  if (strategy.link_bandwidth == 0) return made;
  return std::make_unique<SlowLink>(std::move(made), strategy.link_bandwidth, deadline);
}

}  // namespace pipewright
