#include "benchmarks/common/evenness.h"

#include <torch/torch.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "benchmarks/common/arithmetic.h"
#include "pipewright/base/cores.h"

namespace pipewright::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWarmUp{20};  // a core that slept takes as long to run fast
constexpr std::chrono::milliseconds kTime{30};

/// Rounds a second.
double speed(const Work& work, std::chrono::milliseconds time) {
  const auto start = Clock::now();
  int rounds = 0;
  for (; Clock::now() - start < time; ++rounds) work();
  return rounds / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Work some_matrix_products() {
  constexpr int kRows = 128, kIn = 256, kOut = 512;
  const auto a = torch::randn({kRows, kIn}), b = torch::randn({kIn, kOut});
  return [a, b, out = torch::empty({kRows, kOut})]() mutable {
    const torch::NoGradGuard no_gradient;
    at::mm_out(out, a, b);
  };
}

Work some_arithmetic() {
  constexpr std::int64_t kRounds = 200'000;
  return [] { arithmetic_in_registers(kRounds); };
}

std::function<Work()> work_like(const std::string& layers) {
  return layers == "registers" || layers == "clock" ? some_arithmetic : some_matrix_products;
}

double evenness_of_cores(int ranks, const std::function<Work()>& make_work) {
  const std::vector<int> cores = usable_cores();
  std::vector<double> speeds(static_cast<std::size_t>(ranks));
  std::barrier together(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      pin_thread(share_of_cores(cores, rank, ranks));
      at::set_num_threads(1);
      const Work work = make_work();
      speed(work, kWarmUp);
      together.arrive_and_wait();
      speeds[static_cast<std::size_t>(rank)] = speed(work, kTime);
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double one : speeds) sum += one;
  return *std::min_element(speeds.begin(), speeds.end()) * ranks / sum;
}

}  // namespace pipewright::bench
