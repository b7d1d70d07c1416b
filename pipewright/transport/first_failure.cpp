#include "pipewright/transport/first_failure.h"

namespace pipewright {

bool FirstFailure::set(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = why;
    changed_.notify_all();
  }
  const std::lock_guard lock(listening_);
  for (const auto& [number, listener] : listeners_) listener();
  return true;
}

std::optional<std::string> FirstFailure::get() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<std::string> FirstFailure::wait(std::chrono::duration<double> most) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return failure_.has_value(); });
  return failure_;
}

int FirstFailure::listen(std::function<void()> wake) {
  const std::lock_guard lock(listening_);
  if (get()) wake();
  listeners_[++num_listeners_] = std::move(wake);
  return num_listeners_;
}

void FirstFailure::forget(int listener) {
  const std::lock_guard lock(listening_);
  listeners_.erase(listener);
}

}  // namespace pipewright
