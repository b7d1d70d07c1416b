#pragma once

#include <string>
#include <vector>

#include "pipewright/launch/message.h"
#include "pipewright/launch/options.h"

namespace pipewright::launch {

/// The environment of a rank as NAME=value: this process's own with torchrun's variables set, and
/// the rank's share of the cores. Names that an outer launcher set and that would be wrong here are
/// gone.
std::vector<std::string> rank_environment(const LaunchOptions& options, const Start& start,
                                          int local_rank);

/// What OMP_NUM_THREADS is set to where it is not set: the cores this process may use, shared out
/// over the node's ranks, at least 1.
int default_num_threads(int local_ranks);

}  // namespace pipewright::launch
