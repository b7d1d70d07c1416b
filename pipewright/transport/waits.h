#pragma once

#include <chrono>
#include <mutex>
#include <set>

#include "pipewright/torch/compat_distributed.h"

namespace pipewright {

/// Waits for c10d's works that another thread can end. Any thread may call at any time.
class Waits {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// False where it was given up. Throws what the work does, at its deadline too.
  bool wait(const Work& work, std::chrono::milliseconds most);
  /// Ends all waits: those under way and those to come.
  void abort();

 private:
  std::mutex mutex_;
  std::set<Work> under_way_;
  bool aborted_ = false;
};

}  // namespace pipewright
