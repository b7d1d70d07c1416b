#pragma once

#include <string>

#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

/// Both ends closed on exec, and none of them 0, 1 or 2, so that a child can put them there.
struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Pipe make_pipe();

/// The error of the last system call as an Error: `[launch] cannot DO: words`.
[[noreturn]] void throw_system_error(const std::string& doing);

}  // namespace pipewright::launch
