#pragma once

#include <sys/types.h>

#include "pipewright/launch/pipe.h"
#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

/// A small process that kills the watched process groups when this process ends without having let
/// go of them, as when it is killed itself. A rank alone would end with its parent (start_process
/// sees to that); what a rank started would not.
class Guardian {
 public:
  Guardian();
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  Guardian(Guardian&&) = delete;
  Guardian& operator=(Guardian&&) = delete;

  // Safe between fork and exec; nothing but write().
  void watch(pid_t group) const;
  void let_go(pid_t group) const;

 private:
  explicit Guardian(Pipe pipe);
  void tell(pid_t group) const;

  pid_t pid_;
  UniqueFd line_;  // closed by the system when this process ends: what the guardian waits for
};

}  // namespace pipewright::launch
