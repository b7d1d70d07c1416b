#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace pipewright {

/// Items 0, 1, 2, ... made ahead by worker threads and taken in order.
///
///     workers   make(3)  make(4)  make(5)         at most `ahead` beyond the last one taken
///     take()    0        1        2        3 ...  waits where the next one is not made yet
///
/// Which worker makes an item does not matter, as make(n) depends on n alone. `make` is called by
/// several threads at once. What it throws is thrown by the take() of that item, each time it is
/// asked for: those before it are not lost. Without workers take() makes the items itself.
///
/// take() is for one thread. The destructor waits for the items being made.
template <typename Item>
class Prefetch {
 public:
  using Make = std::function<Item(std::int64_t)>;

  Prefetch(int workers, std::int64_t ahead, std::int64_t first, Make make)
      : make_(std::move(make)), ahead_(ahead), next_taken_(first), next_made_(first) {
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {  // no thread to be had
      stop();
      throw;
    }
  }

  ~Prefetch() { stop(); }
  Prefetch(const Prefetch&) = delete;
  Prefetch(Prefetch&&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  Prefetch& operator=(Prefetch&&) = delete;

  /// The number of the item that take() returns next.
  std::int64_t next() const { return next_taken_; }

  Item take() {
    if (threads_.empty()) {
      Item item = make_(next_taken_);
      ++next_taken_;
      return item;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    made_.wait(lock, [this] { return items_.contains(next_taken_); });
    const auto found = items_.find(next_taken_);
    if (found->second.error) std::rethrow_exception(found->second.error);
    Item item = std::move(found->second.item);
    items_.erase(found);
    ++next_taken_;
    lock.unlock();
    wanted_.notify_one();
    return item;
  }

 private:
  struct Made {
    Item item{};
    std::exception_ptr error;
  };

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wanted_.wait(lock, [this] { return stopped_ || next_made_ < next_taken_ + ahead_; });
      if (stopped_) return;
      const std::int64_t number = next_made_++;
      lock.unlock();
      Made made = make_one(number);
      lock.lock();
      items_.emplace(number, std::move(made));
      made_.notify_one();
    }
  }

  Made make_one(std::int64_t number) noexcept {
    Made made;
    try {
      made.item = make_(number);
    } catch (...) {
      made.error = std::current_exception();
    }
    return made;
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    wanted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Make make_;
  std::int64_t ahead_;
  std::int64_t next_taken_;  // written by take() under the mutex where there are workers
  std::mutex mutex_;
  std::condition_variable wanted_;  // workers wait for it
  std::condition_variable made_;    // take() waits for it
  std::int64_t next_made_;
  std::map<std::int64_t, Made> items_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pipewright
