#include "pipewright/sim/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/ir/csv.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright {
namespace {

StepCosts unit_costs(std::size_t stages) {
  StepCosts costs;
  costs.stages = uniform_stages(
      {.forward = 1, .backward = 2, .backward_input = 1, .backward_weight = 1}, stages, 1);
  return costs;
}

/// Two ranks, one micro-batch: F goes up, B comes down.
Program up_and_down() { return read_csv("0F0,,,0B0\n,1F0,1B0\n").program; }

TEST(Simulator, PlacesEveryInstruction) {
  const Simulation sim = simulate(up_and_down(), unit_costs(2));
  ASSERT_EQ(sim.timeline.ranks.size(), 2U);
  ASSERT_EQ(sim.timeline.ranks[0].size(), 2U);
  EXPECT_EQ(sim.timeline.ranks[0][0].start, 0);
  EXPECT_EQ(sim.timeline.ranks[1][0].start, 1);
  EXPECT_EQ(sim.timeline.ranks[1][1].end, 4);
  EXPECT_EQ(sim.timeline.ranks[0][1].start, 4);
  EXPECT_EQ(sim.step_time(), 6);
  EXPECT_EQ(sim.times.ranks()[0].busy(), 3);
  EXPECT_EQ(sim.times.bubble_fraction(), 0.5);
  EXPECT_EQ(sim.timeline.ranks[1][1].kind, Kind::kBackward);
}

TEST(Simulator, RunsInstructionsAsLongAsTheyTookElsewhere) {
  Simulation sim = simulate(up_and_down(), unit_costs(2));
  Timeline measured = sim.timeline;
  measured.ranks[1][1].end += 5;                       // 1B0
  measured.ranks[0].erase(measured.ranks[0].begin());  // 0F0: by the costs then
  const Simulation again = simulate(up_and_down(), unit_costs(2), {.as_in = &measured});
  EXPECT_EQ(again.step_time(), 6 + 5);
  EXPECT_EQ(again.timeline.ranks[1][1].duration(), 2 + 5);
  EXPECT_EQ(again.times.busy(), 6 + 5);
}

TEST(Simulator, PlaysAnotherProgramsTimesAgain) {
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
    const Program program = make_schedule({.name = schedule, .ranks = 3, .micro_batches = 6});
    StepCosts costs = unit_costs(program.placement.size());
    for (std::size_t s = 0; s < costs.stages.size(); ++s)
      costs.stages[s].forward += 0.1 * static_cast<double>(s);
    const Simulation first = simulate(program, costs);
    const Simulation again =
        simulate(program, unit_costs(program.placement.size()), {.as_in = &first.timeline});
    EXPECT_DOUBLE_EQ(again.step_time(), first.step_time()) << schedule;
    EXPECT_GT(first.step_time(),
              simulate(program, unit_costs(program.placement.size())).step_time());
  }
}

TEST(Simulator, ChargesLatencyAndLinkTime) {
  StepCosts costs = unit_costs(2);
  costs.link = {.latency = 0.5, .time = 0.25};
  const Simulation sim = simulate(up_and_down(), costs);
  EXPECT_EQ(sim.timeline.ranks[1][0].start, 1.75);
  EXPECT_EQ(sim.timeline.ranks[1][0].link_wait, 0.75);
  EXPECT_EQ(sim.step_time(), 6 + 2 * 0.75);
}

TEST(Simulator, LetsMessagesOfOneLinkFollowEachOther) {
  // Rank 0 sends two forwards at 1 and 2; the link takes 5 for each.
  StepCosts costs = unit_costs(2);
  costs.link.time = 5;
  const Simulation sim =
      simulate(make_schedule({.name = "forward-only", .ranks = 2, .micro_batches = 2}), costs);
  EXPECT_EQ(sim.timeline.ranks[1][0].start, 6);
  EXPECT_EQ(sim.timeline.ranks[1][1].start, 11);
  EXPECT_EQ(sim.timeline.ranks[1][1].link_wait, 4);  // idle from 7 to 11, all of it on the link
}

TEST(Simulator, DoesNotLetAReceiveHoldTheRank) {
  // Rank 1's list has the receive of micro-batch 1 before its forward of micro-batch 0.
  StepCosts costs = unit_costs(2);
  costs.link.latency = 10;
  const Program program =
      lower_sends(make_schedule({.name = "gpipe", .ranks = 2, .micro_batches = 2}));
  ASSERT_EQ(to_text(program.ranks[1][1]), "1RECV_F1");
  EXPECT_EQ(simulate(program, costs).timeline.ranks[1][0].start, 11);
}

TEST(Simulator, MovesNothingBetweenStagesOfOneRank) {
  StepCosts costs = unit_costs(2);
  costs.link = {.latency = 10, .time = 10};
  const Simulation sim = simulate(read_csv("0F0,1F0,1B0,0B0\n").program, costs);
  EXPECT_EQ(sim.step_time(), 6);
}

TEST(Simulator, SimulatesLoweredAndPlainProgramsAlike) {
  StepCosts costs;
  costs.link = {.latency = 0.375, .time = 0.125};
  for (const ScheduleInfo& info : all_schedules()) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (const int micro_batches : {1, 3, 8}) {
        const Program program = make_schedule(
            {.name = std::string(info.name), .ranks = ranks, .micro_batches = micro_batches});
        costs.stages = uniform_stages(
            {.forward = 1, .backward = 2.5, .backward_input = 1.5, .activation_bytes = 64},
            program.placement.size(), 1);
        for (std::size_t s = 0; s < costs.stages.size(); ++s)
          costs.stages[s].forward += 0.25 * static_cast<double>(s);
        const Simulation plain = simulate(program, costs);
        const Simulation lowered = simulate(lower_sends(program), costs);
        for (std::size_t r = 0; r < plain.timeline.ranks.size(); ++r) {
          ASSERT_EQ(plain.timeline.ranks[r].size(), lowered.timeline.ranks[r].size());
          for (std::size_t i = 0; i < plain.timeline.ranks[r].size(); ++i) {
            EXPECT_EQ(plain.timeline.ranks[r][i].start, lowered.timeline.ranks[r][i].start);
            EXPECT_EQ(plain.timeline.ranks[r][i].end, lowered.timeline.ranks[r][i].end);
          }
        }
        EXPECT_EQ(plain.peak_bytes, lowered.peak_bytes);
        const Simulation figures = simulate(program, costs, {.record_timeline = false});
        EXPECT_EQ(figures.step_time(), plain.step_time());
        EXPECT_EQ(figures.peak_bytes, plain.peak_bytes);
        EXPECT_TRUE(figures.timeline.ranks.empty());
      }
    }
  }
}

TEST(SimulatorMemory, HoldsActivationsFromForwardToBackward) {
  StepCosts costs = unit_costs(1);
  costs.stages[0].activation_bytes = 100;
  const Simulation sim =
      simulate(make_schedule({.name = "gpipe", .ranks = 1, .micro_batches = 3}), costs);
  EXPECT_EQ(sim.peak_bytes, std::vector<double>{300});
  const auto& curve = sim.timeline.memory[0];
  ASSERT_EQ(curve.size(), 6U);
  EXPECT_EQ(curve[2].time, 2);
  EXPECT_EQ(curve[2].bytes, 300);
  EXPECT_EQ(curve[3].time, 5);  // the end of the first backward
  EXPECT_EQ(curve[3].bytes, 200);
  EXPECT_EQ(curve[5].bytes, 0);
}

TEST(SimulatorMemory, HoldsTheHalfBetweenInputAndWeightGradient) {
  StepCosts costs = unit_costs(1);
  costs.stages[0].activation_bytes = 100;
  costs.stages[0].weight_half_bytes = 30;
  const Simulation sim = simulate(read_csv("0F0,0I0,0F1,0I1,0W0,0W1\n").program, costs);
  EXPECT_EQ(sim.peak_bytes, std::vector<double>{130});
  EXPECT_EQ(sim.peak_in_flight, std::vector<double>{1});
  EXPECT_EQ(sim.timeline.memory[0].back().bytes, 0);
}

TEST(SimulatorMemory, HoldsTheBoundaryUntilRecomputed) {
  StepCosts costs = unit_costs(1);
  costs.stages[0].activation_bytes = 100;
  costs.stages[0].boundary_bytes = 10;
  costs.stages[0].recompute = 1;
  const Program program = make_schedule({.name = "gpipe", .ranks = 1, .micro_batches = 3});
  const Simulation all = simulate(lower_recompute(program, RecomputePass::kAll), costs);
  EXPECT_EQ(all.peak_bytes, std::vector<double>{120});
  EXPECT_EQ(all.step_time(), 3 + 3 * 3);
  EXPECT_EQ(all.times.ranks()[0].recompute, 3);
  const Simulation but_last = simulate(lower_recompute(program, RecomputePass::kExceptLast), costs);
  EXPECT_EQ(but_last.peak_bytes, std::vector<double>{10 + 100 + 100});
  EXPECT_EQ(but_last.timeline.memory[0].back().bytes, 0);
}

TEST(Simulator, RecomputesWhileTheGradientIsOnItsWay) {
  StepCosts costs = unit_costs(2);
  for (auto& stage : costs.stages) stage.recompute = 1;
  costs.link.latency = 5;
  const Program program = lower_recompute(up_and_down(), RecomputePass::kAll);
  const Simulation sim = simulate(lower_sends(program), costs);
  EXPECT_EQ(sim.timeline.ranks[0][1].kind, Kind::kRecompute);
  EXPECT_EQ(sim.timeline.ranks[0][1].start, 1);
}

TEST(Simulator, ChargesReduceAndStepOnce) {
  StepCosts costs = unit_costs(1);
  costs.stages[0].reduce = 4;
  costs.stages[0].step = 8;
  const Program program = make_schedule({.name = "1f1b", .ranks = 1, .micro_batches = 2});
  const Simulation sim = simulate(lower_step(lower_reduce(program)), costs);
  EXPECT_EQ(sim.step_time(), 2 * 3 + 4 + 8);
  EXPECT_EQ(sim.times.ranks()[0].update, 8);
  EXPECT_EQ(sim.times.ranks()[0].reduce, 4);
}

TEST(Simulator, RefusesWhatDoesNotFit) {
  EXPECT_THROW(simulate(up_and_down(), unit_costs(3)), InvalidArgument);
  EXPECT_THROW(simulate(read_csv("0B0,0F0\n").program, unit_costs(1)), ScheduleError);
  EXPECT_THROW(simulate(parse_program("micro_batches 1000000000\nplacement 0\nrank 0: 0F0\n"),
                        unit_costs(1)),
               ScheduleError);
}

}  // namespace
}  // namespace pipewright
