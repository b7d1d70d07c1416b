#pragma once

#include <string>

namespace pipewright::launch {

/// How a process ended.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: it exited by itself

  /// Of what waitpid() says about a process that has ended.
  static ExitStatus of_wait(int wait_status);

  bool failed() const { return code != 0 || signal != 0; }

  /// As a shell says it: 128 + the signal.
  int shell_status() const { return signal != 0 ? 128 + signal : code; }

  /// "exited with status 3", "was killed by signal 9 (SIGKILL)".
  std::string words() const;

  /// True where the signal tells of a death that no other process's end brings about: a peer that
  /// went away ends in an error or an abort, not in SIGKILL or SIGSEGV.
  bool is_own_death() const;
};

/// "SIGKILL"; "signal 40" where it has no name.
std::string signal_name(int signal);

}  // namespace pipewright::launch
