#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipewright/train/strategy.h"
#include "pipewright/transport/transport.h"
#include "pipewright/transport/world.h"

namespace pipewright {

/// Groups of processes are made in the same order in all of them: the name tells them apart.
std::string next_group();

/// Where this process stands among ranks x replicas. Process number `replica * ranks + rank`.
struct Grid {
  int ranks = 1;
  int replicas = 1;
  int rank = 0;                  // this process's, where it has one alone
  int replica = 0;               // this process's
  std::shared_ptr<World> world;  // null: all ranks are threads of this process

  bool one_process() const { return world == nullptr; }
  int num_processes() const { return world ? world->place().size : 1; }
  bool here(int number) const { return one_process() || number == rank; }
  int first_here() const { return one_process() ? 0 : rank; }
  int num_here() const { return one_process() ? ranks : 1; }
};

/// As the strategy and the environment say. Throws InvalidArgument where they do not fit, and what
/// World throws.
Grid make_grid(const Strategy& strategy);

/// Between the ranks of the pipeline that this process belongs to. `stage_devices`: as in
/// Transport; `placement`: the rank of each stage. Throws InvalidArgument where NCCL is asked for
/// and stages are not on GPUs, or processes share one.
std::unique_ptr<Transport> make_transport(const Grid& grid, const Strategy& strategy,
                                          std::vector<torch::Device> stage_devices,
                                          const std::vector<int>& placement);

/// The transports that this build has: "threads", "gloo", "nccl".
std::vector<std::string> transports();

}  // namespace pipewright
