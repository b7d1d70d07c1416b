#include "pipewright/launch/poll_set.h"

#include <cerrno>
#include <climits>

#include "pipewright/launch/pipe.h"

namespace pipewright::launch {
namespace {

/// Rounded up: a wait that ends too early would be begun again for nothing.
int milliseconds_until(std::optional<TimePoint> until) {
  if (!until) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

}  // namespace

void PollSet::add(int fd, int events, Ready ready) {
  if (fd < 0) return;
  fds_.push_back({.fd = fd, .events = static_cast<short>(events), .revents = 0});
  ready_.push_back(std::move(ready));
}

void PollSet::wait(std::optional<TimePoint> until) {
  while (poll(fds_.data(), fds_.size(), milliseconds_until(until)) < 0) {
    if (errno != EINTR) throw_system_error("wait for the ranks");
  }
  for (std::size_t i = 0; i < fds_.size(); ++i) {
    if (fds_[i].revents != 0) ready_[i]();
  }
}

}  // namespace pipewright::launch
