#include "pipewright/plan/step_time_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pipewright/base/error.h"
#include "pipewright/partition/whole_costs.h"
#include "pipewright/plan/split_search.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"

namespace pipewright {
namespace {

// In units of about one simulated instruction, 2 ns or so: some three seconds at most.
constexpr std::int64_t kWorkToStart = 100'000'000;
constexpr std::int64_t kWorkToExhaust = 1'000'000'000;
constexpr std::int64_t kWorkToEnd = 200'000'000;

Program program_of(const StepTimeSpec& spec) {
  if (find_schedule(spec.schedule).asynchronous) {
    throw InvalidArgument("partition",
                          fmt::format("{} never empties its pipeline, so that its heaviest stage "
                                      "alone sets the pace; use --objective bottleneck",
                                      spec.schedule));
  }
  const int chunks = find_schedule(spec.schedule).default_chunks;
  const int ranks = spec.num_stages / chunks;
  if (spec.num_stages % chunks != 0) {
    const std::string fewer = ranks > 0 ? fmt::format("{} or ", ranks * chunks) : "";
    throw InvalidArgument(
        "partition",
        fmt::format("{} runs {} stages a rank and {} {} not divide by that; use --stages {}{}",
                    spec.schedule, chunks, spec.num_stages, spec.num_stages == 1 ? "does" : "do",
                    fewer, (ranks + 1) * chunks));
  }
  return make_schedule({.name = spec.schedule,
                        .ranks = ranks,
                        .micro_batches = spec.micro_batches,
                        .chunks = chunks});
}

std::vector<std::size_t> begins_of(const std::vector<int>& sizes) {
  std::vector<std::size_t> begins;
  std::size_t begin = 0;
  for (const int size : sizes) {
    begins.push_back(begin);
    begin += static_cast<std::size_t>(size);
  }
  return begins;
}

std::vector<int> sizes_of(const std::vector<std::size_t>& begins, std::size_t num_layers) {
  std::vector<int> sizes;
  for (std::size_t stage = 0; stage < begins.size(); ++stage) {
    const std::size_t end = stage + 1 < begins.size() ? begins[stage + 1] : num_layers;
    sizes.push_back(static_cast<int>(end - begins[stage]));
  }
  return sizes;
}

Partition partition_of(const WholeCosts& costs, const std::vector<std::size_t>& begins) {
  const std::vector<uint128> sums = prefix_sums(costs.layers);
  uint128 heaviest = 0;
  Partition partition{sizes_of(begins, costs.layers.size()), 0};
  for (std::size_t stage = 0; stage < begins.size(); ++stage) {
    const std::size_t end = begins[stage] + static_cast<std::size_t>(partition.sizes[stage]);
    heaviest = std::max(heaviest, sums[end] - sums[begins[stage]]);
  }
  partition.bottleneck = costs.value(heaviest);
  return partition;
}

double simulated_time(const Program& program, std::span<const double> costs,
                      const Partition& partition) {
  StepCosts step;
  auto layer = costs.begin();
  for (const int size : partition.sizes) {
    StageCost cost;
    cost.forward = std::accumulate(layer, layer + size, 0.0);
    cost.backward = 2 * cost.forward;
    cost.backward_input = cost.forward;
    cost.backward_weight = cost.forward;
    step.stages.push_back(cost);
    layer += size;
  }
  return simulate(program, step, {.record_timeline = false}).step_time();
}

/// A good split: climbed to from the lightest bottleneck and from even paths.
Split good_split(SplitProblem& problem, const std::vector<std::size_t>& lightest) {
  Split best{lightest, problem.score(lightest)};
  climb(problem, best, kWorkToStart / 2);
  Split other{even_paths(problem), {}};
  other.score = problem.score(other.begins);
  climb(problem, other, kWorkToStart);
  return other.score < best.score ? other : best;
}

}  // namespace

StepTimePartition partition_by_step_time(std::span<const double> costs, const StepTimeSpec& spec) {
  const Partition lightest = partition_by_bottleneck(costs, spec.num_stages);
  const Program program = program_of(spec);
  const WholeCosts whole = to_whole(costs);
  SplitProblem problem(program, shrink(whole, SplitProblem::most_total(program, costs.size())));
  Split best = good_split(problem, begins_of(lightest.sizes));
  const bool exact = exhaust(problem, best, problem.work() + kWorkToExhaust);
  if (!exact) climb(problem, best, problem.work() + kWorkToEnd);

  StepTimePartition result{partition_of(whole, best.begins), 0, exact};
  result.step_time = simulated_time(program, costs, result.partition);
  // Where costs had to be rounded for the search, two nearly equal splits may have changed places.
  const double time_of_lightest = simulated_time(program, costs, lightest);
  if (time_of_lightest < result.step_time) result = {lightest, time_of_lightest, exact};
  if (!std::isfinite(result.step_time)) {
    throw InvalidArgument(
        "partition", "the step takes longer than a double holds; use a larger unit for the costs");
  }
  return result;
}

}  // namespace pipewright
