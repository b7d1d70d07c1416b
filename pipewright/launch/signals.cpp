#include "pipewright/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "pipewright/launch/pipe.h"

namespace pipewright::launch {
namespace {

struct sigaction action(void (*handler)(int)) {
  struct sigaction result {};
  result.sa_handler = handler;
  return result;
}

}  // namespace

Signals::Signals() {
  const struct sigaction by_default = action(SIG_DFL);
  const struct sigaction ignored = action(SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGHUP);
  for (const int signal : kTaken) sigaddset(&blocked, signal);
  sigprocmask(SIG_BLOCK, &blocked, &mask_before_);
  for (std::size_t i = 0; i < kTaken.size(); ++i) sigaction(kTaken[i], &by_default, &before_[i]);
  sigaction(SIGPIPE, &ignored, &before_.back());
  fd_.reset(signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.open()) throw_system_error("wait for signals");
}

Signals::~Signals() {
  while (next()) continue;  // one that came while all was ending must not end us another way
  for (std::size_t i = 0; i < kTaken.size(); ++i) sigaction(kTaken[i], &before_[i], nullptr);
  sigaction(SIGPIPE, &before_.back(), nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> Signals::next() const {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace pipewright::launch
