// Asynchronous schedules in the simulator: formulas that hold exactly, over a sweep of sizes.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pipewright/schedule/continuing.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"

namespace pipewright {
namespace {

int ceil_divide(int a, int b) { return (a + b - 1) / b; }

StepCosts equal_stages(int ranks, double step = 0) {
  UniformShare share;
  share.forward = 1;
  share.backward = 2.5;
  share.activation_bytes = 8;
  share.weight_bytes = 1024;
  StepCosts costs;
  costs.stages = uniform_stages(share, static_cast<std::size_t>(ranks), 1);
  for (StageCost& stage : costs.stages) stage.step = step;
  return costs;
}

/// Calls `check` for ranks and micro-batches from 1 to 8.
template <typename Check>
void sweep(ScheduleSpec spec, Check check) {
  for (spec.ranks = 1; spec.ranks <= 8; ++spec.ranks) {
    for (spec.micro_batches = 1; spec.micro_batches <= 8; ++spec.micro_batches) {
      SCOPED_TRACE(testing::Message()
                   << spec.name << " K=" << spec.ranks << " M=" << spec.micro_batches);
      check(spec, lower_sends(make_schedule(spec)));
    }
  }
}

const ScheduleSpec kAll[] = {{.name = "pipedream"},
                             {.name = "pipedream", .vertical_sync = true},
                             {.name = "pipedream-2bw"},
                             {.name = "eager-pipedream"},
                             {.name = "eager-pipedream", .vertical_sync = true},
                             {.name = "eager-pipedream-2bw"}};

TEST(Asynchronous, EqualStagesHaveNoBubbleInTheSteadyState) {
  for (const ScheduleSpec& each : kAll) {
    for (const double step : {0.0, 0.25, 2.0}) {
      sweep(each, [&](const ScheduleSpec& spec, const Program& program) {
        const Simulation sim = simulate(program, equal_stages(spec.ranks, step));
        ASSERT_TRUE(sim.asynchronous);
        const int every = filled_in(spec).updates_every;
        EXPECT_TRUE(sim.asynchronous->is_steady);
        EXPECT_DOUBLE_EQ(sim.asynchronous->mini_batch_time(spec.micro_batches),
                         spec.micro_batches * 3.5 + step / every);
        EXPECT_EQ(sim.asynchronous->steady.bubble_fraction(), 0);
        EXPECT_EQ(sim.asynchronous->micro_batches % (every * spec.micro_batches), 0);
      });
    }
  }
}

TEST(Asynchronous, TheWholeTakesAWarmUpAndADrainLonger) {
  for (const ScheduleSpec& each : kAll) {
    sweep(each, [&](const ScheduleSpec& spec, const Program& program) {
      const Simulation sim = simulate(program, equal_stages(spec.ranks));
      EXPECT_EQ(sim.step_time(), (program.num_micro_batches + spec.ranks - 1) * 3.5);
    });
  }
}

TEST(Asynchronous, TheHeaviestStageSetsThePace) {
  for (const ScheduleSpec& each : kAll) {
    for (std::size_t heavy = 0; heavy < 4; ++heavy) {
      ScheduleSpec spec = each;
      spec.ranks = 4;
      spec.micro_batches = 4;
      StepCosts costs = equal_stages(4);
      costs.stages[heavy].forward = 3;
      costs.stages[heavy].backward = 5;
      const Simulation sim = simulate(make_schedule(spec), costs);
      EXPECT_EQ(sim.asynchronous->mini_batch_time(4), 4 * 8) << spec.name << " " << heavy;
      EXPECT_NEAR(sim.asynchronous->steady.bubble_fraction(), 1 - (8 + 3 * 3.5) / 32, 1e-12);
    }
  }
}

/// Between F and B of a micro-batch, rank r does as many backwards as there are ranks after it;
/// with a reserve, twice as many.
TEST(Asynchronous, PipedreamHoldsAVersionForEachUpdateOfAMicroBatchsWay) {
  for (const auto& [name, each] : {std::pair("pipedream", 1), {"eager-pipedream", 2}}) {
    sweep({.name = name}, [each = each](const ScheduleSpec& spec, const Program& program) {
      const Simulation sim = simulate(program, equal_stages(spec.ranks));
      for (int rank = 0; rank < spec.ranks; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        const int behind = each * (spec.ranks - 1 - rank);
        const int late = ceil_divide(behind, spec.micro_batches);
        EXPECT_EQ(sim.asynchronous->delay[r], late);
        EXPECT_EQ(sim.asynchronous->versions[r], late + 1);
        EXPECT_EQ(sim.asynchronous->version_bytes[r], 1024 * late);
        EXPECT_EQ(sim.peak_in_flight[r], behind + 1);
      }
    });
  }
}

/// A message comes while what is in reserve runs: no bubble up to a latency of half a micro-batch's
/// time on a stage each way, where without a reserve any latency is waited for.
TEST(Asynchronous, AReserveHidesTheLatencyOfLinks) {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      ScheduleSpec spec{.name = name, .ranks = ranks, .micro_batches = 2 * ranks};
      StepCosts costs = equal_stages(ranks);
      costs.link.latency = 0.5;
      const auto bubble = [&] {
        const Simulation sim = simulate(lower_sends(make_schedule(spec)), costs);
        EXPECT_TRUE(sim.asynchronous->is_steady);
        return sim.asynchronous->steady.bubble_fraction();
      };
      EXPECT_GT(bubble(), 0.05) << name << " K=" << ranks;
      spec.name = std::string("eager-") + name;
      EXPECT_NEAR(bubble(), 0, 1e-12) << name << " K=" << ranks;
      costs.link.latency = 3.5 / 2;
      EXPECT_NEAR(bubble(), 0, 1e-12) << name << " K=" << ranks;
    }
  }
}

TEST(Asynchronous, VerticalSyncHoldsAsManyOnAllRanksAsOnTheFirst) {
  sweep({.name = "pipedream", .vertical_sync = true},
        [](const ScheduleSpec& spec, const Program& program) {
          const Simulation sim = simulate(program, equal_stages(spec.ranks));
          const int late = ceil_divide(spec.ranks - 1, spec.micro_batches);
          const auto ranks = static_cast<std::size_t>(spec.ranks);
          EXPECT_EQ(sim.asynchronous->delay, std::vector<int>(ranks, late));
          EXPECT_EQ(sim.asynchronous->versions, std::vector<int>(ranks, late + 1));
        });
}

TEST(Asynchronous, TwoBufferedWeightsAreTwoAndOneUpdateLate) {
  for (const char* name : {"pipedream-2bw", "eager-pipedream-2bw"}) {
    sweep({.name = name}, [](const ScheduleSpec& spec, const Program& program) {
      const Simulation sim = simulate(program, equal_stages(spec.ranks));
      const auto ranks = static_cast<std::size_t>(spec.ranks);
      EXPECT_EQ(sim.asynchronous->delay, std::vector<int>(ranks, 1));
      EXPECT_EQ(sim.asynchronous->versions, std::vector<int>(ranks, 2));
      EXPECT_EQ(sim.asynchronous->version_bytes, std::vector<double>(ranks, 1024));
    });
  }
}

/// The steady bubble where every instruction takes up to a third more or less, at random.
double bubble_of_uneven_times(const ScheduleSpec& spec, unsigned seed) {
  const Program program = make_schedule(spec);
  Timeline times;
  times.ranks.resize(program.ranks.size());
  std::mt19937 random(seed);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Instruction i : program.ranks[rank]) {
      if (i.kind() == Kind::kStep) continue;
      const double share = static_cast<double>(random()) / std::mt19937::max();  // 0 to 1
      Span span;
      span.end = (i.kind() == Kind::kForward ? 1 : 2) * (2 + 2 * share) / 3;
      span.stage = i.stage();
      span.micro_batch = i.micro_batch();
      span.kind = i.kind();
      times.ranks[rank].push_back(span);
    }
  }
  StepCosts costs;
  costs.stages.resize(program.placement.size());
  const Simulation sim = simulate(program, costs, {.as_in = &times});
  EXPECT_TRUE(sim.asynchronous->is_steady);
  return sim.asynchronous->steady.bubble_fraction();
}

/// Without a reserve, what takes longer once is waited for by all and never made up for.
TEST(Asynchronous, AReserveMakesUpForUnevenTimes) {
  for (const int ranks : {2, 4, 8}) {
    for (const unsigned seed : {1U, 2U, 3U}) {
      ScheduleSpec spec{.name = "pipedream-2bw", .ranks = ranks, .micro_batches = 2 * ranks};
      spec.mini_batches = 64;
      const double plain = bubble_of_uneven_times(spec, seed);
      spec.name = "eager-pipedream-2bw";
      const double eager = bubble_of_uneven_times(spec, seed);
      EXPECT_GT(plain, 0.06) << "K=" << ranks << " seed " << seed;
      EXPECT_LT(eager, plain / 3) << "K=" << ranks << " seed " << seed;
    }
  }
}

TEST(Asynchronous, VersionsCountInThePeak) {
  // The last of 2 ranks updates in place; the first holds two micro-batches and a second version.
  const Program program = make_schedule({.name = "pipedream", .ranks = 2, .micro_batches = 1});
  const Simulation sim = simulate(program, equal_stages(2));
  EXPECT_EQ(sim.peak_bytes, (std::vector<double>{2 * 8 + 1024, 8}));
  EXPECT_EQ(sim.timeline.memory[0].back().bytes, 0);
  EXPECT_EQ(sim.timeline.memory[1].back().bytes, 0);
}

TEST(Asynchronous, TooShortForASteadyStateSaysSo) {
  const Program program =
      make_schedule({.name = "pipedream", .ranks = 3, .micro_batches = 2, .mini_batches = 1});
  const Simulation sim = simulate(program, equal_stages(3));
  EXPECT_FALSE(sim.asynchronous->is_steady);
  EXPECT_EQ(sim.asynchronous->mini_batch_time(2), sim.step_time());
  EXPECT_EQ(sim.asynchronous->steady.bubble_fraction(), sim.times.bubble_fraction());
}

TEST(Asynchronous, SynchronousProgramsHaveNoSuchFigures) {
  const Program program = make_schedule({.name = "1f1b", .ranks = 2, .micro_batches = 4});
  const Simulation sim = simulate(program, equal_stages(2));
  EXPECT_FALSE(sim.asynchronous);
  EXPECT_EQ(sim.timeline.ranks[0][0].version, -1);
}

TEST(Asynchronous, SpansHaveTheirVersion) {
  const Program program = lower_sends(
      make_schedule({.name = "pipedream", .ranks = 2, .micro_batches = 1, .mini_batches = 3}));
  const Simulation sim = simulate(program, equal_stages(2));
  std::vector<int> versions;
  for (const Span& span : sim.timeline.ranks[0]) versions.push_back(span.version);
  EXPECT_EQ(versions, (std::vector<int>{0, 0, 0, 1, 1, 0, 2, 1, 3}));
}

TEST(Asynchronous, APieceBeginsWithWhatIsUnderWay) {
  ContinuingSchedule schedule({.name = "pipedream", .ranks = 3});
  schedule.next(4, true);
  schedule.next(4, true);
  for (const Program& piece : {schedule.next(4, true), schedule.drain()}) {
    const Simulation sim = simulate(lower_sends(piece), equal_stages(3));
    const bool drains = !piece.open;
    EXPECT_EQ(sim.peak_in_flight,
              (drains ? std::vector<double>{2, 1, 0} : std::vector<double>{3, 2, 1}));
    if (!drains) continue;
    EXPECT_EQ(sim.timeline.memory[0].back().bytes, 0);
  }
}

}  // namespace
}  // namespace pipewright
