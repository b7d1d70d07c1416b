#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/launch/guardian.h"
#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

/// The program cannot be executed at all: starting it again would not help.
class CannotExecute : public Error {
 public:
  CannotExecute(const std::string& program, int error);

  /// As shells answer: 127 where it is not there, 126 where it cannot be run.
  int shell_status() const { return shell_status_; }

 private:
  int shell_status_;
};

/// A started program. Not reaped by this: the owner waits for `pid`, which is its process group
/// too.
struct Process {
  pid_t pid = -1;
  UniqueFd out;  // what it writes to its standard output, and
  UniqueFd err;  // to its standard error; read ends that do not block
};

/// Starts `command` (looked up in PATH) in a process group of its own, with nothing to read, no
/// signal blocked, and bound to end when this process ends, however it does; the guardian watches
/// its group before the program runs. Throws CannotExecute, or Error where no process can be made.
Process start_process(const std::vector<std::string>& command,
                      const std::vector<std::string>& environment, const Guardian& guardian);

}  // namespace pipewright::launch
