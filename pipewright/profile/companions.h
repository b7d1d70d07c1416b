#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace pipewright {

/// Threads that compute for as long as this lives, as the other ranks of a machine do while one
/// does: caches, memory and clocks are shared, and a core alone is faster than one of several.
/// Products, and passes over what they made, of the size of a small layer's.
class Companions {
 public:
  /// No more than there are cores beside those that the calling thread computes with.
  explicit Companions(int count);
  ~Companions();
  Companions(const Companions&) = delete;
  Companions& operator=(const Companions&) = delete;
  Companions(Companions&&) = delete;
  Companions& operator=(Companions&&) = delete;

  int count() const { return static_cast<int>(threads_.size()); }

 private:
  void work() const;

  std::atomic<bool> ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pipewright
