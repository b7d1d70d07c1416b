#include "pipewright/plan/step_time_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "pipewright/base/error.h"
#include "pipewright/plan/split_search.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "tests/partition/brute_force.h"

namespace pipewright {
namespace {

using Costs = std::vector<double>;
using Sizes = std::vector<int>;

double simulated(const Program& program, const Costs& costs, const Sizes& sizes) {
  StepCosts step;
  for (const double sum : stage_sums(costs, sizes)) {
    StageCost stage;
    stage.forward = sum;
    stage.backward = 2 * sum;
    stage.backward_input = sum;
    stage.backward_weight = sum;
    step.stages.push_back(stage);
  }
  return simulate(program, step, {.record_timeline = false}).step_time();
}

Program program_for(const StepTimeSpec& spec) {
  const int chunks = find_schedule(spec.schedule).default_chunks;
  return make_schedule({.name = spec.schedule,
                        .ranks = spec.num_stages / chunks,
                        .micro_batches = spec.micro_batches});
}

TEST(StepTimePartition, KnownAnswer) {
  const StepTimePartition best = partition_by_step_time(
      Costs{1, 2, 3, 4, 5, 6, 7, 8}, {.schedule = "1f1b", .micro_batches = 8, .num_stages = 4});
  EXPECT_EQ(best.partition.sizes, (Sizes{4, 2, 1, 1}));
  EXPECT_EQ(best.partition.bottleneck, 11);
  EXPECT_EQ(best.step_time, 318);
  EXPECT_TRUE(best.exact);
}

TEST(StepTimePartition, LightestBottleneckIsNotAlwaysFastest) {
  const Costs costs = {6, 4, 5};
  const StepTimeSpec spec{.schedule = "1f1b", .micro_batches = 4, .num_stages = 2};
  EXPECT_EQ(partition_by_bottleneck(costs, 2).sizes, (Sizes{1, 2}));
  const StepTimePartition best = partition_by_step_time(costs, spec);
  EXPECT_EQ(best.partition.sizes, (Sizes{2, 1}));
  EXPECT_EQ(best.partition.bottleneck, 10);
  EXPECT_EQ(best.step_time, 125);
  EXPECT_EQ(simulated(program_for(spec), costs, {1, 2}), 126);
}

TEST(StepTimePartition, TiesGoToTheMoreBalancedSplit) {
  for (const ScheduleInfo& schedule : all_schedules()) {
    if (schedule.asynchronous) continue;
    if (schedule.name == "interleaved-1f1b") continue;  // its ranks do not do their work evenly
    const StepTimePartition best = partition_by_step_time(
        Costs(8, 0.1),
        {.schedule = std::string(schedule.name), .micro_batches = 4, .num_stages = 4});
    EXPECT_EQ(best.partition.sizes, (Sizes{2, 2, 2, 2})) << schedule.name;
  }
}

TEST(StepTimePartition, OneStageOrALayerAStage) {
  const Costs costs = {3, 0, 5};
  const StepTimePartition whole =
      partition_by_step_time(costs, {.schedule = "gpipe", .micro_batches = 2, .num_stages = 1});
  EXPECT_EQ(whole.partition.sizes, (Sizes{3}));
  EXPECT_EQ(whole.step_time, 48);
  EXPECT_TRUE(whole.exact);
  const StepTimePartition single =
      partition_by_step_time(costs, {.schedule = "gpipe", .micro_batches = 2, .num_stages = 3});
  EXPECT_EQ(single.partition.sizes, (Sizes{1, 1, 1}));
  EXPECT_TRUE(single.exact);
}

std::string message_of(const Costs& costs, const StepTimeSpec& spec) {
  try {
    partition_by_step_time(costs, spec);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(StepTimePartitionErrors, SayWhatToDo) {
  EXPECT_EQ(
      message_of(Costs(6, 1), {.schedule = "zb-v", .micro_batches = 4, .num_stages = 5}),
      "[partition] zb-v runs 2 stages a rank and 5 do not divide by that; use --stages 4 or 6");
  EXPECT_EQ(message_of(Costs(6, 1), {.schedule = "zb-v", .micro_batches = 4, .num_stages = 1}),
            "[partition] zb-v runs 2 stages a rank and 1 does not divide by that; use --stages 2");
  EXPECT_EQ(message_of(Costs(6, 1), {.schedule = "1f1b", .micro_batches = 4, .num_stages = 8}),
            "[partition] cannot split 6 layers into 8 stages; use --stages 6 or fewer");
  EXPECT_EQ(
      message_of({1e308, 1e308}, {.schedule = "1f1b", .micro_batches = 4, .num_stages = 2}),
      "[partition] the step takes longer than a double holds; use a larger unit for the costs");
  EXPECT_NE(message_of({1, 2}, {.schedule = "1f1b", .micro_batches = 0, .num_stages = 2}),
            "no error");
  EXPECT_NE(message_of({1, 2}, {.schedule = "2f2b", .micro_batches = 1, .num_stages = 2}),
            "no error");
}

/// A random problem that can be enumerated: costs are whole numbers of a unit that is a power of
/// two, so that the simulator's sums are exact and ties are ties.
struct RandomCase {
  StepTimeSpec spec;
  Costs costs;
};

RandomCase random_case(std::mt19937& random, const ScheduleInfo& schedule) {
  const auto between = [&](int least, int most) {
    return std::uniform_int_distribution<>(least, most)(random);
  };
  RandomCase made;
  const int chunks = schedule.default_chunks;
  made.spec.schedule = schedule.name;
  made.spec.num_stages = chunks * between(1, chunks == 1 ? 6 : 3);
  made.spec.micro_batches = between(1, 9);
  const int num_layers = made.spec.num_stages + between(0, chunks == 1 ? 4 : 5);
  const int family = between(0, 4);
  for (int layer = 0; layer < num_layers; ++layer) {
    int units = between(0, 9);
    if (family == 1) units = between(0, 1);
    if (family == 2) units = between(0, 5) == 0 ? between(500, 1000) : between(0, 20);
    if (family == 3) units = 1;
    if (family == 4) units = between(0, 1 << 20);
    made.costs.push_back(units * 0.25);
  }
  return made;
}

/// In units of 0.25.
std::vector<std::uint64_t> whole_layers(const RandomCase& made) {
  std::vector<std::uint64_t> layers;
  for (const double cost : made.costs) layers.push_back(static_cast<std::uint64_t>(cost * 4));
  return layers;
}

using Score = std::tuple<double, double, double, int>;

Score score_of(const Program& program, const Costs& costs, const Sizes& sizes) {
  const Costs sums = stage_sums(costs, sizes);
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  int counts = 0;
  for (const int size : sizes) counts += size * size;
  return {simulated(program, costs, sizes), *std::max_element(sums.begin(), sums.end()), squares,
          counts};
}

std::vector<ScheduleInfo> synchronous_schedules() {
  std::vector<ScheduleInfo> schedules = all_schedules();
  std::erase_if(schedules, [](const ScheduleInfo& info) { return info.asynchronous; });
  return schedules;
}

const std::vector<ScheduleInfo>& synchronous() {
  static const std::vector<ScheduleInfo> kSchedules = synchronous_schedules();
  return kSchedules;
}

class StepTimeOfSchedule : public testing::TestWithParam<std::size_t> {
 protected:
  const ScheduleInfo& schedule() const { return synchronous()[GetParam()]; }
};

TEST_P(StepTimeOfSchedule, IsTheBestOfAllSplits) {
  std::mt19937 random(2024);
  for (int round = 0; round < 1500; ++round) {
    const RandomCase made = random_case(random, schedule());
    const StepTimePartition best = partition_by_step_time(made.costs, made.spec);
    const Program program = program_for(made.spec);
    const Score ours = score_of(program, made.costs, best.partition.sizes);
    ASSERT_TRUE(best.exact);
    ASSERT_EQ(best.step_time, std::get<0>(ours));
    ASSERT_EQ(best.partition.bottleneck, std::get<1>(ours));
    for_each_split(
        static_cast<int>(made.costs.size()), made.spec.num_stages, [&](const Sizes& sizes) {
          ASSERT_LE(ours, score_of(program, made.costs, sizes))
              << "M " << made.spec.micro_batches << " costs " << testing::PrintToString(made.costs)
              << " ours " << testing::PrintToString(best.partition.sizes) << " better "
              << testing::PrintToString(sizes);
        });
  }
}

std::vector<std::size_t> begins_of(const Sizes& sizes) {
  std::vector<std::size_t> begins(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), std::size_t{0});
  return begins;
}

/// What prunes the search must hold for every split, not only for the best one.
TEST_P(StepTimeOfSchedule, IsNeverBelowItsBounds) {
  std::mt19937 random(77);
  for (int round = 0; round < 300; ++round) {
    const RandomCase made = random_case(random, schedule());
    const Program program = program_for(made.spec);
    SplitProblem problem(program, whole_layers(made));
    const auto check = [&](const Sizes& sizes) {
      const std::vector<std::size_t> begins = begins_of(sizes);
      const SplitScore score = problem.score(begins);
      ASSERT_EQ(static_cast<double>(score.time), 4 * simulated(program, made.costs, sizes));
      for (std::size_t stage = 0; stage < begins.size(); ++stage) {
        const std::size_t end = begins[stage] + static_cast<std::size_t>(sizes[stage]);
        ASSERT_LE(problem.stage_score(stage, begins[stage], end).time, score.time);
        ASSERT_LE(problem.time_over_ranks({begins.data(), stage + 1}, end), score.time);
      }
    };
    for_each_split(static_cast<int>(made.costs.size()), made.spec.num_stages, check);
  }
}

/// From the worst start nothing but the exhaustive search can find the best.
TEST_P(StepTimeOfSchedule, ExhaustFindsTheBestFromTheWorst) {
  std::mt19937 random(78);
  for (int round = 0; round < 300; ++round) {
    const RandomCase made = random_case(random, schedule());
    const Program program = program_for(made.spec);
    SplitProblem problem(program, whole_layers(made));
    std::vector<Split> all;
    for_each_split(static_cast<int>(made.costs.size()), made.spec.num_stages,
                   [&](const Sizes& sizes) {
                     all.push_back({begins_of(sizes), problem.score(begins_of(sizes))});
                   });
    const auto [best, worst] = std::minmax_element(
        all.begin(), all.end(), [](const Split& a, const Split& b) { return a.score < b.score; });
    Split found = *worst;
    ASSERT_TRUE(exhaust(problem, found, problem.work() + 100'000'000));
    ASSERT_EQ(found.score, best->score);
  }
}

TEST(EvenPaths, OfEqualLayersAreEqualStages) {
  const Program program = program_for({.schedule = "1f1b", .micro_batches = 1000, .num_stages = 4});
  SplitProblem problem(program, std::vector<std::uint64_t>(40, 7));
  EXPECT_EQ(even_paths(problem), (std::vector<std::size_t>{0, 10, 20, 30}));
}

TEST_P(StepTimeOfSchedule, SearchStopsAtItsBudgetAndKeepsTheBest) {
  std::mt19937 random(5);
  std::vector<std::uint64_t> layers(120);
  for (std::uint64_t& layer : layers) layer = random() % 1000;
  const StepTimeSpec spec{
      .schedule = std::string(schedule().name), .micro_batches = 16, .num_stages = 16};
  const Program program = program_for(spec);
  SplitProblem problem(program, layers);
  Split split{even_paths(problem), {}};
  split.score = problem.score(split.begins);

  const SplitScore start = split.score;
  const std::int64_t climb_until = problem.work() + 20 * problem.work_of_score();
  climb(problem, split, climb_until);
  EXPECT_LE(problem.work(), climb_until);
  EXPECT_LE(split.score, start);
  EXPECT_EQ(split.score, problem.score(split.begins));

  const SplitScore climbed = split.score;
  const std::int64_t before = problem.work();
  EXPECT_FALSE(exhaust(problem, split, before + 1000));
  EXPECT_EQ(problem.work(), before) << "not even the tables fit";
  exhaust(problem, split, before + 2000000);
  EXPECT_LE(split.score, climbed);
  EXPECT_EQ(split.score, problem.score(split.begins));
}

TEST_P(StepTimeOfSchedule, IsNoSlowerThanTheLightestBottleneck) {
  std::mt19937 random(11);
  for (int round = 0; round < 3; ++round) {
    Costs costs(60);
    for (double& cost : costs) cost = std::uniform_real_distribution<>(0, 1)(random);
    const StepTimeSpec spec{
        .schedule = std::string(schedule().name), .micro_batches = 12, .num_stages = 6};
    const StepTimePartition best = partition_by_step_time(costs, spec);
    EXPECT_LE(best.step_time,
              simulated(program_for(spec), costs, partition_by_bottleneck(costs, 6).sizes));
    EXPECT_EQ(std::accumulate(best.partition.sizes.begin(), best.partition.sizes.end(), 0), 60);
  }
}

TEST(StepTimePartition, BeyondItsBudgetSaysSoAndIsStillNoSlower) {
  std::mt19937 random(11);
  Costs costs(150);
  for (double& cost : costs) cost = std::uniform_real_distribution<>(0, 1)(random);
  const StepTimeSpec spec{.schedule = "zb-v", .micro_batches = 32, .num_stages = 16};
  const StepTimePartition best = partition_by_step_time(costs, spec);
  EXPECT_FALSE(best.exact);
  EXPECT_LT(best.step_time,
            simulated(program_for(spec), costs, partition_by_bottleneck(costs, 16).sizes));
}

INSTANTIATE_TEST_SUITE_P(Schedules, StepTimeOfSchedule,
                         testing::Range(std::size_t{0}, synchronous().size()),
                         [](const testing::TestParamInfo<std::size_t>& schedule) {
                           std::string name(synchronous()[schedule.param].name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pipewright
