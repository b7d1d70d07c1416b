#include "pipewright/exec/workers.h"

#include <pthread.h>
#include <sched.h>
#include <torch/torch.h>

#include <algorithm>

namespace pipewright {
namespace {

/// The cores this process may use.
std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// Pins the calling thread to its part of the cores, so that ranks do not chase each other's
/// caches.
void pin(int rank, int num_ranks) {
  const std::vector<int> cores = usable_cores();
  const auto share = cores.size() / static_cast<std::size_t>(num_ranks);
  if (share == 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (std::size_t i = 0; i < share; ++i)
    CPU_SET(cores[static_cast<std::size_t>(rank) * share + i], &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

}  // namespace

Workers::Workers(int num_ranks, int threads_per_rank) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads_.emplace_back([this, rank, num_ranks, threads_per_rank] {
      if (num_ranks > 1) pin(rank, num_ranks);
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
