#include "pipewright/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "pipewright/launch/pipe.h"

namespace pipewright::launch {
namespace {

std::string why_not(const std::string& program, int error) {
  const char* advice = error == ENOENT   ? "check its path"
                       : error == EACCES ? "is it a program, with the permission to execute it?"
                                         : "check that it is a program of this machine";
  return fmt::format("cannot run '{}': {}; {}", program, std::strerror(error), advice);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts)
    result.push_back(const_cast<char*>(text.c_str()));  // exec does not write to them
  result.push_back(nullptr);
  return result;
}

void reset_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGCHLD})
    std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// The child's side; only calls that are safe after fork.
[[noreturn]] void become(char* const* argv, char* const* environment, pid_t parent,
                         const Guardian& guardian, int out, int err, int failure) {
  setpgid(0, 0);
  guardian.watch(getpid());  // here, since what the program starts must not be ahead of it
  // The parent may have ended before prctl: then its end is never signalled.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(126);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  reset_signals();
  execvpe(argv[0], argv, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = write(failure, &error, sizeof(error));
  _exit(127);
}

/// The child's errno where it could not execute the program, else 0. Waits until it has tried.
int exec_error(int failure) {
  int error = 0;
  ssize_t size = 0;
  do size = read(failure, &error, sizeof(error));
  while (size < 0 && errno == EINTR);
  return size == sizeof(error) ? error : 0;
}

void reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace

CannotExecute::CannotExecute(const std::string& program, int error)
    : Error("launch", why_not(program, error)), shell_status_(error == ENOENT ? 127 : 126) {}

Process start_process(const std::vector<std::string>& command,
                      const std::vector<std::string>& environment, const Guardian& guardian) {
  const auto argv = pointers(command);
  const auto variables = pointers(environment);
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe failure = make_pipe();
  fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw_system_error(fmt::format("start a process for '{}'", command[0]));
  if (pid == 0) {
    become(argv.data(), variables.data(), parent, guardian, out.write.get(), err.write.get(),
           failure.write.get());
  }
  failure.write.reset();
  if (const int error = exec_error(failure.read.get()); error != 0) {
    reap(pid);
    guardian.let_go(pid);
    throw CannotExecute(command[0], error);
  }
  return {pid, std::move(out.read), std::move(err.read)};
}

}  // namespace pipewright::launch
