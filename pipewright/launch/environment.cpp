#include "pipewright/launch/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "pipewright/base/cores.h"

namespace pipewright::launch {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Variables torchrun_variables(const LaunchOptions& options, const Start& start, int local_rank) {
  const std::string rank = std::to_string(start.first_rank + local_rank);
  const std::string world_size = std::to_string(start.world_size);
  return {
      {"RANK", rank},
      {"WORLD_SIZE", world_size},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.local_ranks)},
      {"GROUP_RANK", std::to_string(options.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(options.nnodes)},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world_size},
      {"MASTER_ADDR", start.master_addr},
      {"MASTER_PORT", std::to_string(start.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(start.attempt)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", start.run_id},
      // Rank 0 opens the store itself; "True" would make it look for one in the launcher.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
  };
}

}  // namespace

int default_num_threads(int local_ranks) {
  return std::max(1, static_cast<int>(usable_cores().size()) / local_ranks);
}

std::vector<std::string> rank_environment(const LaunchOptions& options, const Start& start,
                                          int local_rank) {
  Variables ours = torchrun_variables(options, start, local_rank);
  if (!options.devices.empty())
    ours["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(options.devices, ","));
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    ours["OMP_NUM_THREADS"] = std::to_string(default_num_threads(options.local_ranks));
  const auto cores = share_of_cores(usable_cores(), local_rank, options.local_ranks);
  ours[kCoresVariable] = fmt::format("{}", fmt::join(cores, ","));
  const std::set<std::string_view> outer = {"TORCHELASTIC_ERROR_FILE"};
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!ours.contains(name) && !outer.contains(name)) all.emplace_back(text);
  }
  for (const auto& [name, value] : ours) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

}  // namespace pipewright::launch
