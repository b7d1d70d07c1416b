#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace pipewright {

/// What this process knows of the run's failure, and whom it wakes. Any thread may call at any
/// time.
class FirstFailure {
 public:
  /// Takes note of a failure, of several the first, and wakes everybody here. True for the first.
  bool set(const std::string& why);
  std::optional<std::string> get() const;
  /// Waits for it, up to so long.
  std::optional<std::string> wait(std::chrono::duration<double> most) const;

  /// Calls `wake` when there is a failure, from another thread or at once. The number is for
  /// forget(), after which it is not called any more.
  int listen(std::function<void()> wake);
  void forget(int listener);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<std::string> failure_;
  std::mutex listening_;  // held while listeners are called: forget() waits for that
  std::map<int, std::function<void()>> listeners_;
  int num_listeners_ = 0;
};

}  // namespace pipewright
