#include "pipewright/transport/environment.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"

namespace pipewright {
namespace {

/// A launcher's names for rank, number of ranks and rank on the machine.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
};

constexpr std::array kLaunchers = {
    Names{"pipewright launch or torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Names{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Names{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::string required(const char* name, const Names& names) {
  if (const auto value = variable(name)) return *value;
  throw InvalidArgument("environment",
                        fmt::format("{} is set, as by {}, but not {}; start the program with "
                                    "pipewright launch, or set it",
                                    names.rank, names.launcher, name));
}

int number(const char* name, const std::string& text, int least, int most) {
  return static_cast<int>(parse_integer(text, name, least, most));
}

ProcessPlace read_with(const Names& names) {
  constexpr int kMostRanks = 1 << 16;
  constexpr int kMostPort = 65535;
  ProcessPlace place;
  place.launched_by = names.launcher;
  place.size = number(names.size, required(names.size, names), 1, kMostRanks);
  place.rank = number(names.rank, required(names.rank, names), 0, kMostRanks);
  if (place.rank >= place.size) {
    throw InvalidArgument("environment", fmt::format("{} = {} is not below {} = {}", names.rank,
                                                     place.rank, names.size, place.size));
  }
  if (const auto local = variable(names.local_rank))
    place.local_rank = number(names.local_rank, *local, 0, kMostRanks);
  place.master_address = required("MASTER_ADDR", names);
  place.master_port = number("MASTER_PORT", required("MASTER_PORT", names), 1, kMostPort);
  if (const auto count = variable("TORCHELASTIC_RESTART_COUNT"))
    place.restart = number("TORCHELASTIC_RESTART_COUNT", *count, 0, 1 << 30);
  place.store_runs = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return place;
}

}  // namespace

ProcessPlace read_environment() {
  for (const Names& names : kLaunchers) {
    if (variable(names.rank)) return read_with(names);
  }
  return {};
}

}  // namespace pipewright
