#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <vector>

#include "pipewright/launch/clock.h"

namespace pipewright::launch {

/// One round of waiting: descriptors and what to do when they are ready.
class PollSet {
 public:
  using Ready = std::function<void()>;

  /// `events` 0 waits for nothing but errors; negative descriptors are left out.
  void add(int fd, int events, Ready ready);

  /// Waits until one is ready or the moment has come, then calls what belongs to the ready ones.
  void wait(std::optional<TimePoint> until);

 private:
  std::vector<pollfd> fds_;
  std::vector<Ready> ready_;
};

}  // namespace pipewright::launch
