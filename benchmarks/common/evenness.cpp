#include "benchmarks/common/evenness.h"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "pipewright/base/cores.h"

namespace pipewright::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTime{30};

/// As many independent sums as keep a core's units busy; some microseconds.
double arithmetic(double seed) {
  std::array<double, 16> sums{};
  sums.fill(seed);
  for (int i = 0; i < 4000; ++i) {
    for (double& sum : sums) sum = sum * 0.999 + 0.001;
  }
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

/// Rounds a second.
double speed(double seed) {
  const auto start = Clock::now();
  volatile double result = seed;
  int rounds = 0;
  for (; Clock::now() - start < kTime; ++rounds) result = arithmetic(result);
  return rounds / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double evenness_of_cores(int ranks) {
  const std::vector<int> cores = usable_cores();
  std::vector<double> speeds(static_cast<std::size_t>(ranks));
  std::barrier together(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      pin_thread(share_of_cores(cores, rank, ranks));
      together.arrive_and_wait();
      speeds[static_cast<std::size_t>(rank)] = speed(rank + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double one : speeds) sum += one;
  return *std::min_element(speeds.begin(), speeds.end()) * ranks / sum;
}

}  // namespace pipewright::bench
