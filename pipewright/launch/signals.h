#pragma once

#include <array>
#include <csignal>
#include <optional>

#include "pipewright/launch/unique_fd.h"

namespace pipewright::launch {

/// While it lives, signals that end this process, and those of its children, are read from a
/// descriptor instead of acted upon, and a closed pipe is an error of write() alone. For the whole
/// process: make one at a time, before other threads.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  Signals(Signals&&) = delete;
  Signals& operator=(Signals&&) = delete;

  int fd() const { return fd_.get(); }

  /// The next signal that came: SIGCHLD, SIGINT, SIGTERM, SIGQUIT or SIGHUP; none without waiting.
  std::optional<int> next() const;

 private:
  UniqueFd fd_;
  sigset_t mask_before_{};
  // A shell starts background jobs with SIGINT ignored, and some services ignore SIGCHLD: here
  // both count. SIGHUP stays ignored where it was, which is what nohup asks for.
  static constexpr std::array kTaken = {SIGINT, SIGTERM, SIGQUIT, SIGCHLD};
  std::array<struct sigaction, kTaken.size() + 1> before_{};  // and SIGPIPE's
};

}  // namespace pipewright::launch
