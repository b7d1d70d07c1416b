#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pipewright {

/// One thread a rank, started once. A job runs on all of them at the same time.
class Workers {
 public:
  /// `threads_per_rank`: intra-op threads of each. `pin`: each rank stays on its share of the
  /// cores, where that has one for every thread; of a process that was launched beside others, of
  /// its part of them (base/cores.h). A rank alone in a process that was not goes where the system
  /// likes.
  Workers(int num_ranks, int threads_per_rank, bool pin = true);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Runs job(rank) on every rank's thread and returns when all have ended. `on_failure` is called
  /// once, from the thread that failed first, so that it can wake the others; that first exception
  /// is thrown here.
  void run(const std::function<void(int)>& job, const std::function<void()>& on_failure);

  int num_ranks() const { return static_cast<int>(threads_.size()); }

 private:
  void serve(int rank, int threads_per_rank);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable ended_;
  const std::function<void(int)>* job_ = nullptr;
  const std::function<void()>* on_failure_ = nullptr;
  std::uint64_t generation_ = 0;  // of the job
  int num_running_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace pipewright
