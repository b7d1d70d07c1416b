#include "pipewright/train/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/transport/gloo.h"
#include "pipewright/transport/process_transport.h"

namespace pipewright {
namespace {

constexpr int kSpinMicroseconds = 2000;

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

std::unique_ptr<Transport> process_transport(const Grid& grid, const Strategy& strategy,
                                             std::vector<torch::Device> stage_devices) {
  const ProcessPlace& place = grid.world->place();
  const std::chrono::duration<double> deadline(strategy.deadline_seconds);
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(deadline);
  std::vector<int> processes;
  for (int rank = 0; rank < grid.ranks; ++rank)
    processes.push_back(grid.replica * grid.ranks + rank);
  auto group = make_gloo_group(*grid.world, next_group(), place.rank, place.size, timeout);
  return std::make_unique<ProcessTransport>(grid.world.get(), std::move(group),
                                            std::move(processes), grid.rank,
                                            std::move(stage_devices), deadline);
}

}  // namespace

std::string next_group() {
  static int number = 0;
  return fmt::format("group{}", number++);
}

std::vector<std::string> transports() {
  std::vector<std::string> names = {"threads"};
  if (has_gloo()) names.emplace_back("gloo");
  return names;
}

Grid make_grid(const Strategy& strategy) {
  Grid grid;
  grid.ranks = strategy.ranks;
  grid.replicas = strategy.replicas;
  const auto known = transports();
  if (std::find(known.begin(), known.end(), strategy.transport) == known.end()) {
    refuse(fmt::format("transport = '{}'; this build has {}", strategy.transport,
                       fmt::join(known, ", ")));
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
                                          std::vector<torch::Device> stage_devices) {
  if (!grid.one_process()) return process_transport(grid, strategy, std::move(stage_devices));
  const bool cores_for_all =
      grid.ranks <= std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::make_unique<InprocTransport>(
      grid.ranks, std::move(stage_devices),
      std::chrono::duration<double>(strategy.deadline_seconds),
      std::chrono::microseconds(cores_for_all ? kSpinMicroseconds : 0));
}

}  // namespace pipewright
