#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pipewright {

/// Where all ranks of a process wait for each other: before an update that needs something of every
/// stage.
class Meeting {
 public:
  Meeting(int num_ranks, std::chrono::duration<double> deadline);

  /// Returns when every rank has called it. Throws TransportError at the deadline or after abort().
  void wait();

  /// Wakes those who wait; wait() throws from now on, until reset().
  void abort();
  void reset();

 private:
  int num_ranks_;
  std::chrono::duration<double> deadline_;
  std::mutex mutex_;
  std::condition_variable met_;
  int num_waiting_ = 0;
  std::uint64_t generation_ = 0;  // how often they met
  bool aborted_ = false;
};

}  // namespace pipewright
