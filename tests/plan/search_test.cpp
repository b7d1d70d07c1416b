// The plan search against brute force, and the plan's file.

#include "pipewright/plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "pipewright/cost/scale.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "tests/refusal.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

Profile random_profile(int layers, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  Profile profile;
  profile.model = "random";
  profile.input_bytes = 8;
  for (int i = 0; i < layers; ++i) {
    LayerCost layer;
    layer.name = "layer" + std::to_string(i);
    layer.forward_seconds = draw(1, 9);
    layer.backward_input_seconds = draw(1, 9);
    layer.backward_weight_seconds = draw(1, 9);
    layer.backward_seconds = layer.backward_input_seconds + layer.backward_weight_seconds;
    layer.step_seconds = draw(0, 2);
    layer.output_bytes = draw(4, 16);
    layer.saved_bytes = layer.output_bytes + draw(0, 60);
    layer.weight_half_bytes = layer.saved_bytes / 2;
    layer.forward_temp_bytes = draw(0, 8);
    layer.backward_temp_bytes = layer.output_bytes + draw(0, 8);
    layer.parameter_bytes = draw(0, 20);
    layer.gradient_bytes = layer.parameter_bytes;
    profile.layers.push_back(layer);
  }
  return profile;
}

/// Every split of `layers` into `stages`.
void splits(int layers, int stages, std::vector<int>* sizes,
            const std::function<void(const std::vector<int>&)>& visit) {
  if (stages == 1) {
    sizes->push_back(layers);
    visit(*sizes);
    sizes->pop_back();
    return;
  }
  for (int size = 1; size <= layers - stages + 1; ++size) {
    sizes->push_back(size);
    splits(layers - size, stages - 1, sizes, visit);
    sizes->pop_back();
  }
}

/// The least step time without recompute over everything there is to choose, written down plainly.
double least_without_recompute(const Profile& one, const PlanRequest& request) {
  double least = std::numeric_limits<double>::infinity();
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.forward_only || info.asynchronous) continue;
    for (int chunks = info.least_chunks; chunks <= std::min(info.most_chunks, 2); ++chunks) {
      const int stages = request.ranks * chunks;
      if (stages > static_cast<int>(one.layers.size())) continue;
      for (int m = 1; m <= static_cast<int>(request.global_batch); ++m) {
        const double rows = static_cast<double>(request.global_batch) / m;
        const Profile profile =
            scale_profile(std::span(&one, 1), rows, static_cast<int>(std::ceil(rows)));
        const Program program = lower_step(make_schedule({.name = std::string(info.name),
                                                          .ranks = request.ranks,
                                                          .micro_batches = m,
                                                          .chunks = chunks}));
        std::vector<int> sizes;
        splits(static_cast<int>(one.layers.size()), stages, &sizes, [&](const auto& split) {
          StepCosts costs;
          for (const LayerRange& range : layer_ranges(split)) {
            costs.stages.push_back(stage_cost(profile, range, program,
                                              static_cast<int>(costs.stages.size()),
                                              save_everything(range.size())));
            if (request.link_bandwidth > 0) {
              costs.stages.back().link_time =
                  static_cast<double>(profile.layers[range.last - 1].output_bytes) /
                  request.link_bandwidth;
            }
          }
          const Simulation sim = simulate(program, costs);
          for (const double bytes : sim.peak_bytes) {
            if (request.memory_bytes > 0 && bytes > static_cast<double>(request.memory_bytes))
              return;
          }
          least = std::min(least, sim.step_time());
        });
      }
    }
  }
  return least;
}

TEST(PlanSearch, FindsTheFastestOfAllWhereMemoryIsNoBound) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const Profile profile = random_profile(5 + static_cast<int>(seed % 3), seed);
    PlanRequest request;
    request.ranks = 1 + static_cast<int>(seed % 3);
    request.global_batch = 6;
    request.most_chunks = 2;
    if (seed % 2 == 1) request.link_bandwidth = 4;  // a byte takes a quarter of a second
    const PlanSearch found = search_plans(std::span(&profile, 1), request);
    ASSERT_FALSE(found.plans.empty());
    EXPECT_DOUBLE_EQ(found.plans[0].step_seconds, least_without_recompute(profile, request))
        << "seed " << seed;
  }
}

TEST(PlanSearch, WithinABudgetIsNeverSlowerThanTheFastestThatFitsWithoutRecompute) {
  int fitted = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const Profile profile = random_profile(6, seed);
    PlanRequest request;
    request.ranks = 1 + static_cast<int>(seed % 3);
    request.global_batch = 6;
    request.most_chunks = 2;
    request.memory_bytes = 250 + 50 * static_cast<std::int64_t>(seed % 8);
    const PlanSearch found = search_plans(std::span(&profile, 1), request);
    for (const Plan& plan : found.plans) {
      for (const std::int64_t bytes : plan.peak_bytes)
        EXPECT_LE(bytes, request.memory_bytes) << plan.schedule;
    }
    const double plain = least_without_recompute(profile, request);
    if (!std::isfinite(plain)) continue;
    ++fitted;
    ASSERT_FALSE(found.plans.empty()) << "seed " << seed;
    EXPECT_LE(found.plans[0].step_seconds, plain) << "seed " << seed;
  }
  EXPECT_GE(fitted, 8);
}

TEST(PlanSearch, RecomputesWhereOnlyThatFits) {
  const Profile profile = random_profile(8, 3);
  PlanRequest request;
  request.global_batch = 1;
  const PlanSearch free = search_plans(std::span(&profile, 1), request);
  request.memory_bytes = free.plans.at(0).peak_bytes.at(0) * 3 / 4;
  const PlanSearch tight = search_plans(std::span(&profile, 1), request);
  ASSERT_EQ(tight.plans.size(), 1);
  EXPECT_EQ(tight.plans[0].recompute(), "budget");
  EXPECT_GT(tight.plans[0].step_seconds, free.plans[0].step_seconds);
  EXPECT_LE(tight.plans[0].peak_bytes[0], request.memory_bytes);
}

TEST(Predict, APlanWrittenByHandNeedNotSayThatItDoesNotOffload) {
  const Profile profile = random_profile(8, 3);
  PlanRequest request;
  const PlanSearch found = search_plans(std::span(&profile, 1), request);
  Plan plan = found.plans.at(0);
  plan.operations = {keep_checkpoints(8, {1, 4}, false)};
  plan.offload = {0};
  const Plan said = predict(std::span(&profile, 1), plan);
  plan.offload.clear();
  const Plan unsaid = predict(std::span(&profile, 1), plan);
  EXPECT_EQ(said.step_seconds, unsaid.step_seconds);
  EXPECT_EQ(said.peak_bytes, unsaid.peak_bytes);
  EXPECT_GT(unsaid.step_seconds, found.plans[0].step_seconds);
}

/// One rank does one thing after the other: what is not run again is not counted, to the last
/// digit.
TEST(Predict, TheLastMicroBatchIsNotRunAgainWhereItIsKept) {
  const Profile profile = random_profile(8, 3);
  Plan none;
  none.micro_batches = 4;
  none.sizes = {8};
  const auto seconds = [&](const Plan& plan) {
    return predict(std::span(&profile, 1), plan).step_seconds;
  };
  Plan all = none;
  all.operations = {keep_checkpoints(8, {1}, false)};
  Plan except_last = all;
  except_last.except_last = true;
  EXPECT_EQ(except_last.recompute(), "except_last");
  EXPECT_NEAR(seconds(except_last), seconds(none) + (seconds(all) - seconds(none)) * 3 / 4, 1e-9);
  EXPECT_TRUE(parse_plan(to_json(except_last), "test").except_last);
}

TEST(PlanSearch, SaysWhyNot) {
  const Profile profile = random_profile(3, 1);
  PlanRequest request;
  request.ranks = 2;
  request.global_batch = 2;
  request.memory_bytes = 40;
  const PlanSearch found = search_plans(std::span(&profile, 1), request);
  EXPECT_TRUE(found.plans.empty());
  ASSERT_FALSE(found.rejected.empty());
  EXPECT_THAT(found.rejected[0].reason,
              HasSubstr("2 ranks of 2 chunks are 4 stages, and there are 3"));
  EXPECT_THAT(found.rejected.back().reason, HasSubstr("would need at least"));
}

TEST(PlanSearch, RefusesNonsense) {
  const Profile profile = random_profile(3, 1);
  const auto why = [&](PlanRequest request) {
    return refusal([&] { search_plans(std::span(&profile, 1), request); });
  };
  EXPECT_THAT(why({.ranks = 0}), HasSubstr("0 ranks"));
  EXPECT_THAT(why({.global_batch = 0}), HasSubstr("a global batch of 0"));
  EXPECT_THAT(why({.memory_bytes = -1}), HasSubstr("-1 bytes a rank"));
  EXPECT_THAT(why({.schedules = {"2f2b"}}), HasSubstr("'2f2b' is no schedule"));
  EXPECT_THAT(why({.schedules = {"forward-only"}}), HasSubstr("does not train"));
}

TEST(PlanFile, IsReadBackAsItWasWritten) {
  const Profile profile = random_profile(8, 3);
  PlanRequest request;
  request.ranks = 2;
  request.global_batch = 4;
  request.memory_bytes = 260;
  const PlanSearch found = search_plans(std::span(&profile, 1), request);
  ASSERT_FALSE(found.plans.empty());
  int recomputing = 0;
  for (const Plan& plan : found.plans) {
    EXPECT_EQ(parse_plan(to_json(plan), "test"), plan);
    if (!plan.operations.empty()) ++recomputing;
  }
  EXPECT_GT(recomputing, 0);
}

TEST(PlanFile, NamesWhatIsWrong) {
  const auto with = [](const std::string& from, const std::string& to) {
    Plan plan;
    plan.ranks = 2;
    plan.sizes = {2, 1};
    plan.operations = {save_everything(2), save_everything(1)};
    plan.offload = {0, 1};
    std::string text = to_json(plan);
    const auto at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    return refusal([&] { parse_plan(text, "plan x.json"); });
  };
  EXPECT_THAT(with("pipewright-plan", "pipewright-profile"), HasSubstr("this is no plan"));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 7"), HasSubstr("is of version 7"));
  EXPECT_THAT(with("S1-2", "X1-2"), HasSubstr("'X1-2' is no operation"));
  EXPECT_THAT(with("S1-2", "S2-1"), HasSubstr("runs the wrong way"));
  EXPECT_THAT(with("S1-2", "S1-3"), HasSubstr("there is no such layer"));
  EXPECT_THAT(with("S1-2 B2-1", "S1-2"), HasSubstr("ends before the backward of layer 2"));
  EXPECT_THAT(with("    1\n  ],\n  \"step", "    2\n  ],\n  \"step"),
              HasSubstr("offload names stage 2"));
  EXPECT_THAT(with("\"ranks\": 2", "\"ranks\": 3"), HasSubstr("sizes are of 2 stages"));
  EXPECT_THAT(with("\"ranks\": 2", "\"rank\": 2"), HasSubstr("plan.rank is no member"));
}

TEST(AsynchronousPlans, AreTriedOnlyWhenAsked) {
  const Profile profile = random_profile(6, 5);
  PlanRequest request;
  request.ranks = 3;
  request.global_batch = 6;
  for (const Plan& plan : search_plans(std::span(&profile, 1), request).plans) {
    EXPECT_FALSE(find_schedule(plan.schedule).asynchronous);
    EXPECT_EQ(plan.delay, 0);
  }
  request.asynchronous = true;
  const PlanSearch found = search_plans(std::span(&profile, 1), request);
  std::set<std::string> names;
  for (const Plan& plan : found.plans) names.insert(plan.schedule);
  EXPECT_TRUE(names.contains("pipedream") && names.contains("pipedream-2bw"));
  EXPECT_TRUE(names.contains("1f1b"));
  EXPECT_TRUE(find_schedule(found.plans[0].schedule).asynchronous);  // no bubble
  EXPECT_GE(found.plans[0].delay, 1);
  EXPECT_EQ(parse_plan(to_json(found.plans[0]), "test"), found.plans[0]);
}

/// In the steady state the heaviest rank sets the pace: of no split is it lighter than of this one.
TEST(AsynchronousPlans, AreAsFastAsTheLightestBottleneck) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    Profile profile = random_profile(6, seed);
    for (LayerCost& layer : profile.layers) layer.step_seconds = 0;
    PlanRequest request;
    request.ranks = 2;
    request.global_batch = 4;
    request.schedules = {"pipedream"};
    double lightest = std::numeric_limits<double>::infinity();
    std::vector<int> sizes;
    splits(6, 2, &sizes, [&](const auto& split) {
      double heaviest = 0;
      for (const LayerRange& range : layer_ranges(split)) {
        double work = 0;
        for (std::size_t i = range.first; i < range.last; ++i)
          work += profile.layers[i].forward_seconds + profile.layers[i].backward_seconds;
        heaviest = std::max(heaviest, work);
      }
      lightest = std::min(lightest, heaviest);
    });
    const PlanSearch found = search_plans(std::span(&profile, 1), request);
    EXPECT_NEAR(found.plans[0].step_seconds, 4 * lightest, 1e-9) << "seed " << seed;
  }
}

TEST(AsynchronousPlans, CountTheVersionsInTheMemory) {
  Profile profile = random_profile(4, 1);
  for (LayerCost& layer : profile.layers) layer.parameter_bytes = 10000;
  PlanRequest request;
  request.ranks = 4;
  request.global_batch = 1;
  request.most_micro_batches = 1;
  request.schedules = {"1f1b", "pipedream"};
  const PlanSearch found = search_plans(std::span(&profile, 1), request);
  ASSERT_EQ(found.plans.size(), 2U);
  const bool first = found.plans[0].schedule == "pipedream";
  const Plan& plan = found.plans[first ? 0 : 1];
  const Plan& plain = found.plans[first ? 1 : 0];
  EXPECT_EQ(plan.delay, 3);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto versions = static_cast<std::int64_t>(3 - rank);
    EXPECT_GE(plan.peak_bytes[rank], plain.peak_bytes[rank] + 10000 * versions);
    EXPECT_LE(plan.peak_bytes[rank], plain.peak_bytes[rank] + 10000 * versions + 2000);
  }
  request.memory_bytes = 35000;
  const PlanSearch tight = search_plans(std::span(&profile, 1), request);
  ASSERT_EQ(tight.rejected.size(), 1U);
  EXPECT_EQ(tight.rejected[0].plan.schedule, "pipedream");
  EXPECT_THAT(tight.rejected[0].reason, HasSubstr("for parameters in all their versions"));
}

}  // namespace
}  // namespace pipewright
