#include "pipewright/transport/waits.h"

namespace pipewright {

bool Waits::wait(const Work& work, std::chrono::milliseconds most) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return false;
    under_way_.insert(work);
  }
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    under_way_.erase(work);
  };
  try {
    const bool there = work->wait(most);
    forget();
    return there;
  } catch (...) {
    forget();
    throw;
  }
}

void Waits::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const Work& work : under_way_) work->abort();
}

}  // namespace pipewright
