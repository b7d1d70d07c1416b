#include "pipewright/run/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "pipewright/run/what_if.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "tests/run/sample.h"

namespace pipewright {
namespace {

using testing::HasSubstr;
using namespace testing_run;

/// A run that needs no folder.
RunRecord record_of(const Plan& plan, const std::optional<Profile>& profile,
                    const Timeline& measured) {
  RunRecord run;
  run.plan = plan;
  run.profile = profile;
  run.measured = TimelineFile{1, measured};
  return run;
}

const Suggestion* find_kind(const std::vector<Suggestion>& all, const std::string& kind) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Suggestion& one) { return one.kind == kind; });
  return found == all.end() ? nullptr : &*found;
}

TEST(MeasuredCosts, AreTheMeansOfAStagesInstructions) {
  Timeline timeline;
  timeline.ranks = {{{0, 1, 0, 0, 0, Kind::kForward},
                     {1, 4, 0, 0, 1, Kind::kForward},
                     {4, 9, 0, 0, 0, Kind::kBackward},
                     {9, 9.5, 0, 0, -1, Kind::kStep}},
                    {{1, 2, 0, 1, 0, Kind::kForward}, {2, 3, 0, 1, 0, Kind::kSendForward}}};
  const auto costs = measured_costs(timeline, 2);
  EXPECT_EQ(costs[0].forward, 2);
  EXPECT_EQ(costs[0].backward, 5);
  EXPECT_EQ(costs[0].step, 0.5);
  EXPECT_EQ(costs[1].forward, 1);
  EXPECT_EQ(costs[1].backward, 0);
}

/// The simulator, given the costs back that a simulated "measurement" was made of, makes that step.
TEST(MeasuredModel, ExplainsAStepThatTheSimulatorMade) {
  const Profile profile = sample_profile();
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    for (const bool recompute : {false, true}) {
      Plan plan = sample_plan(profile);
      plan.schedule = schedule;
      if (recompute) plan = recomputing(profile, plan);
      const Timeline measured = measured_timeline(profile, plan);
      const double step = StepTimes(measured).step_time();
      const WhatIf what_if(measured_model(plan, profile, measured));
      EXPECT_NEAR(what_if.baseline().step_seconds, step, 1e-9 * step) << schedule << recompute;
      const WhatIf stages(measured_model(plan, std::nullopt, measured));
      EXPECT_NEAR(stages.baseline().step_seconds, step, 1e-9 * step) << schedule << recompute;
      EXPECT_EQ(most_bytes(stages.baseline()), 0);
    }
  }
}

TEST(MeasuredModel, HoldsForMicroBatchesThatDoNotDivideTheBatch) {
  const Profile profile = sample_profile();
  Plan plan = sample_plan(profile);
  plan.global_batch = 61;  // of 8 and of 7
  plan.micro_batch_size = 8;
  const Timeline measured = measured_timeline(profile, plan);
  const WhatIf what_if(measured_model(plan, profile, measured));
  const double step = StepTimes(measured).step_time();
  EXPECT_NEAR(what_if.baseline().step_seconds, step, 1e-9 * step);
}

TEST(WhatIf, AScheduleIsWhatTheSimulatorMakesOfTheMeasuredTimes) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  const Timeline measured = measured_timeline(profile, plan);
  const WhatIf what_if(measured_model(plan, profile, measured));
  const Plan found = what_if.with_schedule(what_if.baseline(), "gpipe", 1);
  // By another way: the measured means of the stages, simulated without layers.
  const Program gpipe = lower_step(lower_sends(
      make_schedule({.name = "gpipe", .ranks = plan.ranks, .micro_batches = plan.micro_batches})));
  const Simulation sim = simulate(gpipe, {measured_costs(measured, plan.sizes.size()), {}});
  EXPECT_NEAR(found.step_seconds, sim.step_time(), 1e-9 * sim.step_time());
}

TEST(WhatIf, ABetterSplitIsFoundAndIsNoneBetterByOneLayer) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  WhatIf what_if(measured_model(plan, profile, measured_timeline(profile, plan)));
  const Plan best = what_if.with_best_split(what_if.baseline());
  EXPECT_LT(best.step_seconds, 0.97 * what_if.baseline().step_seconds);
  for (std::size_t s = 0; s + 1 < best.sizes.size(); ++s) {
    for (const int by : {-1, 1}) {
      Plan next = best;
      next.sizes[s] += by;
      next.sizes[s + 1] -= by;
      if (next.sizes[s] < 1 || next.sizes[s + 1] < 1) continue;
      EXPECT_GE(what_if.predicted(next).step_seconds, best.step_seconds * (1 - 1e-9));
    }
  }
}

TEST(Advice, FindsTheScheduleTheSplitAndBothTogether) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  const Advice advice = advise(record_of(plan, profile, measured_timeline(profile, plan)));
  EXPECT_EQ(advice.unknown, "");
  EXPECT_NEAR(advice.explained(), 1, 1e-9);
  const Suggestion* split = find_kind(advice.faster, "split");
  ASSERT_NE(split, nullptr);
  EXPECT_THAT(split->title, HasSubstr("instead of 5, 4, 3, 4"));
  EXPECT_THAT(split->settings[1], HasSubstr("pipeline.sizes=["));
  const Suggestion* schedule = find_kind(advice.faster, "schedule");
  ASSERT_NE(schedule, nullptr);
  EXPECT_NE(schedule->plan.schedule, "1f1b");
  const Suggestion* together = find_kind(advice.faster, "together");
  ASSERT_NE(together, nullptr);
  EXPECT_GT(together->speedup, split->speedup);
  EXPECT_GT(together->speedup, schedule->speedup);
  for (std::size_t i = 1; i < advice.faster.size(); ++i)
    EXPECT_LE(advice.faster[i].speedup, advice.faster[i - 1].speedup);
}

TEST(Advice, AGainIsThatOfTheMeasuredStep) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  const Timeline measured = measured_timeline(profile, plan);
  const Advice advice = advise(record_of(plan, profile, measured));
  const double step = StepTimes(measured).step_time();
  for (const Suggestion& one : advice.faster) {
    const double batches = static_cast<double>(one.plan.global_batch) / 64;
    EXPECT_NEAR(one.speedup, step / one.step_seconds * batches, 1e-9) << one.title;
    EXPECT_GE(one.speedup, 1.01) << one.title;
    EXPECT_TRUE(one.fits) << one.title;
    EXPECT_LE(most_bytes(one.plan), plan.memory_bytes) << one.title;
  }
}

TEST(Advice, NothingThatDoesNotFitIsSuggested) {
  const Profile profile = sample_profile();
  Plan plan = sample_plan(profile);
  const Timeline measured = measured_timeline(profile, plan);
  plan.memory_bytes = *std::max_element(plan.peak_bytes.begin(), plan.peak_bytes.end());
  const Advice tight = advise(record_of(plan, profile, measured));
  for (const Suggestion& one : tight.faster) EXPECT_LE(most_bytes(one.plan), plan.memory_bytes);
  const auto gpipe = std::find_if(tight.schedules.begin(), tight.schedules.end(),
                                  [](const auto& one) { return one.plan.schedule == "gpipe"; });
  ASSERT_NE(gpipe, tight.schedules.end());
  EXPECT_FALSE(gpipe->fits);
}

TEST(Advice, ARunThatRecomputesIsToldWhatItCosts) {
  const Profile profile = sample_profile();
  Plan plan = recomputing(profile, sample_plan(profile));
  plan.memory_bytes = 0;
  const Advice advice = advise(record_of(plan, profile, measured_timeline(profile, plan)));
  const Suggestion* off = find_kind(advice.faster, "recompute");
  ASSERT_NE(off, nullptr);
  EXPECT_TRUE(off->plan.operations.empty());
  EXPECT_GT(off->speedup, 1.1);  // a third of the forwards and backwards was the forward again
  EXPECT_GT(most_bytes(off->plan), most_bytes(advice.baseline));
}

TEST(Advice, OneThatDoesNotIsToldWhatItWouldSave) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  const Advice advice = advise(record_of(plan, profile, measured_timeline(profile, plan)));
  const Suggestion* on = find_kind(advice.leaner, "recompute");
  ASSERT_NE(on, nullptr);
  EXPECT_LT(most_bytes(on->plan), most_bytes(advice.baseline));
  EXPECT_LT(on->speedup, 1);
}

TEST(Advice, WithoutAProfileStagesAreAllThatIsKnown) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  const Advice advice = advise(record_of(plan, std::nullopt, measured_timeline(profile, plan)));
  EXPECT_FALSE(advice.knows_bytes);
  EXPECT_EQ(find_kind(advice.faster, "split"), nullptr);
  EXPECT_TRUE(advice.leaner.empty());
  for (const Suggestion& one : advice.schedules) EXPECT_EQ(one.plan.chunks, 1);
  EXPECT_NE(find_kind(advice.faster, "micro_batches"), nullptr);
}

TEST(Advice, OneRankHasNoScheduleToChoose) {
  const Profile profile = sample_profile(3);
  Plan plan;
  plan.ranks = 1;
  plan.global_batch = 16;
  plan.micro_batches = 2;
  plan.micro_batch_size = 8;
  plan.sizes = {5};
  plan = predict(std::span(&profile, 1), plan);
  const Advice advice = advise(record_of(plan, profile, measured_timeline(profile, plan)));
  EXPECT_TRUE(advice.faster.empty());
}

TEST(Advice, SaysWhyThereIsNone) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  RunRecord run = record_of(plan, profile, measured_timeline(profile, plan));
  run.measured.reset();
  EXPECT_EQ(advise(run).unknown, "no step of the run was measured");
  run.plan.reset();
  EXPECT_THAT(advise(run).unknown, HasSubstr("no plan.json"));
  Plan going_on = plan;
  going_on.schedule = "pipedream";
  EXPECT_THAT(advise(record_of(going_on, profile, Timeline{})).unknown,
              HasSubstr("goes on from one mini-batch to the next"));
  EXPECT_EQ(advise(record_of(plan, profile, Timeline{"", "s", {{}, {}, {}, {}}, {}})).unknown,
            "the measured step is empty");
}

TEST(Advice, NeverMakesUpdatesLate) {
  const Profile profile = sample_profile();
  const Plan plan = sample_plan(profile);
  const Advice advice = advise(record_of(plan, profile, measured_timeline(profile, plan)));
  ASSERT_FALSE(advice.schedules.empty());
  for (const Suggestion& one : advice.schedules) {
    EXPECT_FALSE(find_schedule(one.plan.schedule).asynchronous) << one.title;
  }
}

}  // namespace
}  // namespace pipewright
