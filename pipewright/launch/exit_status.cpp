#include "pipewright/launch/exit_status.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

namespace pipewright::launch {

ExitStatus ExitStatus::of_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status)};
}

std::string ExitStatus::words() const {
  if (signal != 0) return fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
  return fmt::format("exited with status {}", code);
}

bool ExitStatus::is_own_death() const {
  switch (signal) {
    case 0:
    case SIGABRT:  // an exception that nobody caught
    case SIGPIPE:
    case SIGTERM:
    case SIGINT: return false;
    default: return true;
  }
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace pipewright::launch
