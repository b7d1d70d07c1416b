#include "pipewright/partition/partition.h"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

namespace {

using Costs = std::vector<double>;

Costs random_costs(std::size_t num_layers) {
  std::mt19937 random(1);
  std::uniform_real_distribution<> cost(0, 1);
  Costs costs(num_layers);
  for (double& layer : costs) layer = cost(random);
  return costs;
}

Costs equal_costs(std::size_t num_layers) { return Costs(num_layers, 0.1); }

/// The bound leaves all other stages room, so that nothing narrows the search for balance.
Costs one_huge_cost(std::size_t num_layers) {
  Costs costs = random_costs(num_layers);
  costs[num_layers / 2] = 1e12;
  return costs;
}

void split(benchmark::State& state, Costs (*make_costs)(std::size_t)) {
  const Costs costs = make_costs(static_cast<std::size_t>(state.range(0)));
  while (state.KeepRunning()) {
    benchmark::DoNotOptimize(
        pipewright::partition_by_bottleneck(costs, static_cast<int>(state.range(1))));
  }
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"layers", "stages"})->Unit(benchmark::kMillisecond);
  for (const std::int64_t layers : {100, 1000, 10000}) {
    for (const std::int64_t stages : {4, 64, 1024}) {
      if (stages <= layers) benchmark->Args({layers, stages});
    }
  }
}

BENCHMARK_CAPTURE(split, random, random_costs)->Apply(sizes);
BENCHMARK_CAPTURE(split, equal, equal_costs)->Apply(sizes);
BENCHMARK_CAPTURE(split, one_huge, one_huge_cost)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
