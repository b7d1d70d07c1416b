#include "pipewright/launch/guardian.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "pipewright/launch/options.h"

namespace pipewright::launch {
namespace {

/// Groups come as they are, and negative to be let go of. Written in whole (less than PIPE_BUF), so
/// read in whole.
[[noreturn]] void guard(int line) {
  static std::array<pid_t, kMostLocalRanks> groups;
  std::size_t num_groups = 0;
  pid_t told = 0;
  for (;;) {
    const ssize_t size = read(line, &told, sizeof(told));
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof(told)) break;
    if (told > 0 && num_groups < groups.size()) groups[num_groups++] = told;
    if (told < 0) {
      pid_t* const end = std::remove(groups.data(), groups.data() + num_groups, -told);
      num_groups = static_cast<std::size_t>(end - groups.data());
    }
  }
  for (std::size_t i = 0; i < num_groups; ++i) kill(-groups[i], SIGKILL);
  _exit(0);
}

/// Nothing of the parent's is kept open, and nothing sent to its group or terminal reaches us.
[[noreturn]] void become_guardian(int line) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  setsid();
  dup2(line, STDIN_FILENO);
  close_range(STDIN_FILENO + 1, ~0U, 0);
  guard(STDIN_FILENO);
}

}  // namespace

Guardian::Guardian() : Guardian(make_pipe()) {}

Guardian::Guardian(Pipe pipe) : pid_(fork()), line_(std::move(pipe.write)) {
  if (pid_ < 0) throw_system_error("start a process");
  if (pid_ > 0) return;
  line_.reset();  // with a copy of it here, the end would never be seen
  become_guardian(pipe.read.get());
}

Guardian::~Guardian() {
  line_.reset();
  // Another wait of this process may have reaped it already (ECHILD).
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void Guardian::tell(pid_t group) const {
  // A guardian that somebody killed is no reason to end the run.
  while (write(line_.get(), &group, sizeof(group)) < 0 && errno == EINTR) continue;
}

void Guardian::watch(pid_t group) const { tell(group); }
void Guardian::let_go(pid_t group) const { tell(-group); }

}  // namespace pipewright::launch
