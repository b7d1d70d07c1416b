// How long does it take to generate, lower, validate and simulate a step, and how does that grow?

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"

namespace pipewright {
namespace {

Program make(const std::string& name, const benchmark::State& state) {
  return make_schedule({.name = name,
                        .ranks = static_cast<int>(state.range(0)),
                        .micro_batches = static_cast<int>(state.range(1))});
}

StepCosts costs_of(const Program& program) {
  StepCosts costs;
  costs.stages =
      uniform_stages({}, program.placement.size(), static_cast<std::size_t>(program.num_chunks()));
  return costs;
}

void count(benchmark::State& state, std::size_t instructions) {
  state.counters["instructions"] = static_cast<double>(instructions);
  state.counters["per_second"] = benchmark::Counter(static_cast<double>(instructions),
                                                    benchmark::Counter::kIsIterationInvariantRate);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MiB_so_far"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

/// All of it, as `pipewright simulate` does it, the timeline recorded.
void whole(benchmark::State& state, const std::string& name) {
  std::size_t instructions = 0;
  for (auto _ : state) {
    const Program program = lower_sends(make(name, state));
    validate(program);
    benchmark::DoNotOptimize(simulate(program, costs_of(program)).step_time());
    instructions = program.num_instructions();
  }
  count(state, instructions);
}

void generate_part(benchmark::State& state) {
  std::size_t instructions = 0;
  for (auto _ : state) instructions = make("1f1b", state).num_instructions();
  count(state, instructions);
}

void lower_part(benchmark::State& state) {
  const Program program = make("1f1b", state);
  std::size_t instructions = 0;
  for (auto _ : state) instructions = lower_sends(program).num_instructions();
  count(state, instructions);
}

void validate_part(benchmark::State& state) {
  const Program program = lower_sends(make("1f1b", state));
  for (auto _ : state) validate(program);
  count(state, program.num_instructions());
}

void simulate_part(benchmark::State& state) {
  const Program program = lower_sends(make("1f1b", state));
  const StepCosts costs = costs_of(program);
  for (auto _ : state) benchmark::DoNotOptimize(simulate(program, costs).step_time());
  count(state, program.num_instructions());
}

void growth(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"K", "M"})->Unit(benchmark::kMillisecond)->Iterations(1);
  for (const int ranks : {4, 16, 64, 256, 1024}) bench->Args({ranks, 4096});
  for (const int micro_batches : {16, 64, 256, 1024}) bench->Args({1024, micro_batches});
}

void largest(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"K", "M"})->Unit(benchmark::kMillisecond)->Iterations(1)->Args({1024, 4096});
}

BENCHMARK_CAPTURE(whole, 1f1b, "1f1b")->Apply(growth);
BENCHMARK(generate_part)->Apply(largest);
BENCHMARK(lower_part)->Apply(largest);
BENCHMARK(validate_part)->Apply(largest);
BENCHMARK(simulate_part)->Apply(largest);
BENCHMARK_CAPTURE(whole, zb_v, "zb-v")
    ->ArgNames({"K", "M"})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->Args({256, 4096});
BENCHMARK_CAPTURE(whole, interleaved_1f1b, "interleaved-1f1b")
    ->ArgNames({"K", "M"})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->Args({256, 4096});

}  // namespace
}  // namespace pipewright

BENCHMARK_MAIN();
