#pragma once

#include <string>

namespace pipewright {

/// Who this process is among those of a run.
struct ProcessPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among those of this machine
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  int restart = 0;          // how often the launcher has started the run again
  bool store_runs = false;  // the launcher keeps the store itself (torchrun)
  std::string launched_by;  // for people: whose variables were read

  /// One of several, started by a launcher.
  bool launched() const { return !launched_by.empty(); }
};

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as pipewright launch and
/// torchrun set them; where RANK is absent, Open MPI's or Slurm's own variables. With none of them
/// this is a process on its own. Throws InvalidArgument naming the variable that is wrong or
/// missing.
ProcessPlace read_environment();

}  // namespace pipewright
