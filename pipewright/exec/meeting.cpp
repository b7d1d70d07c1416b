#include "pipewright/exec/meeting.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {

Meeting::Meeting(int num_ranks, std::chrono::duration<double> deadline)
    : num_ranks_(num_ranks), deadline_(deadline) {}

void Meeting::wait() {
  std::unique_lock lock(mutex_);
  if (aborted_)
    throw TransportError("meeting", "the step was given up because another rank failed");
  const auto generation = generation_;
  if (++num_waiting_ == num_ranks_) {
    num_waiting_ = 0;
    ++generation_;
    met_.notify_all();
    return;
  }
  const bool there =
      met_.wait_for(lock, deadline_, [&] { return generation_ != generation || aborted_; });
  if (generation_ != generation) return;
  if (there) throw TransportError("meeting", "the step was given up because another rank failed");
  throw TransportError(
      "meeting", fmt::format("the ranks did not meet within {} s; raise the deadline if a stage is "
                             "that slow",
                             deadline_.count()));
}

void Meeting::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  met_.notify_all();
}

void Meeting::reset() {
  const std::lock_guard lock(mutex_);
  aborted_ = false;
  num_waiting_ = 0;
}

}  // namespace pipewright
