#include "pipewright/exec/workers.h"

#include <torch/torch.h>

#include "pipewright/base/cores.h"

namespace pipewright {
namespace {

/// Where a rank's thread stays; none: anywhere.
std::vector<int> cores_of(int rank, int num_ranks, int threads_per_rank) {
  std::vector<int> cores = launched_cores();
  if (cores.empty() && num_ranks > 1) cores = usable_cores();
  std::vector<int> share = share_of_cores(cores, rank, num_ranks);
  if (share.size() < static_cast<std::size_t>(threads_per_rank)) share.clear();
  return share;
}

}  // namespace

Workers::Workers(int num_ranks, int threads_per_rank, bool pin) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto cores = pin ? cores_of(rank, num_ranks, threads_per_rank) : std::vector<int>();
    threads_.emplace_back([this, rank, threads_per_rank, cores] {
      pin_thread(cores);
      serve(rank, threads_per_rank);
    });
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Workers::run(const std::function<void(int)>& job, const std::function<void()>& on_failure) {
  std::unique_lock lock(mutex_);
  job_ = &job;
  on_failure_ = &on_failure;
  failure_ = nullptr;
  num_running_ = num_ranks();
  ++generation_;
  wake_.notify_all();
  ended_.wait(lock, [&] { return num_running_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Workers::serve(int rank, int threads_per_rank) {
  torch::set_num_threads(threads_per_rank);
  std::uint64_t done = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != done; });
    if (stopping_) return;
    done = generation_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*job_)(rank);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !failure_) {
      failure_ = failure;
      (*on_failure_)();
    }
    failure = nullptr;
    if (--num_running_ == 0) ended_.notify_one();
  }
}

}  // namespace pipewright
