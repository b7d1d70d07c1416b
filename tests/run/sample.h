#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "pipewright/cost/profile.h"
#include "pipewright/plan/plan.h"
#include "pipewright/plan/search.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/run/folder.h"
#include "pipewright/run/log.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/sim/simulate.h"

namespace pipewright::testing_run {

/// Numbers that look like noise and are the same everywhere.
class Noise {
 public:
  double operator()() {  // from -1 to 1
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state_ >> 11U) / 4503599627370496.0 - 1;
  }

 private:
  std::uint64_t state_ = 1;
};

/// A small transformer: an embedding, blocks, a head that is heavier than a block.
inline Profile sample_profile(int blocks = 14) {
  constexpr std::int64_t kMiB = 1 << 20;
  Profile profile;
  profile.model = "gpt";
  profile.machine = "a machine of tests";
  profile.micro_batch_size = 8;
  profile.input_bytes = kMiB / 4;
  const auto layer = [&](const std::string& name, double forward, std::int64_t saved,
                         std::int64_t parameters) {
    LayerCost cost;
    cost.name = name;
    cost.forward_seconds = forward;
    cost.backward_seconds = 2 * forward;
    cost.backward_input_seconds = 1.1 * forward;
    cost.backward_weight_seconds = 0.95 * forward;
    cost.step_seconds = 2e-4 * static_cast<double>(parameters) / static_cast<double>(kMiB);
    cost.output_bytes = 2 * kMiB;
    cost.saved_bytes = saved;
    cost.weight_half_bytes = saved / 2;
    cost.backward_temp_bytes = 3 * kMiB;
    cost.parameter_bytes = parameters;
    cost.gradient_bytes = parameters;
    cost.optimizer_bytes = 2 * parameters;
    profile.layers.push_back(cost);
  };
  layer("embed", 0.6e-3, 2 * kMiB, 12 * kMiB);
  for (int i = 0; i < blocks; ++i) layer("block" + std::to_string(i), 4e-3, 18 * kMiB, 7 * kMiB);
  layer("head", 6.5e-3, 10 * kMiB, 12 * kMiB);
  return profile;
}

/// Four ranks of 1f1b, split badly on purpose.
inline Plan sample_plan(const Profile& profile) {
  Plan plan;
  plan.model = profile.model;
  plan.schedule = "1f1b";
  plan.ranks = 4;
  plan.global_batch = 64;
  plan.micro_batches = 8;
  plan.micro_batch_size = 8;
  const int layers = static_cast<int>(profile.layers.size());
  plan.sizes = {layers - 11, 4, 3, 4};
  plan.memory_bytes = std::int64_t{640} << 20;
  return predict(std::span(&profile, 1), plan);
}

/// The plan with every stage run again from its input.
inline Plan recomputing(const Profile& profile, Plan plan) {
  for (const int size : plan.sizes) plan.operations.push_back(keep_checkpoints(size, {1}, false));
  plan.offload.assign(plan.sizes.size(), 0);
  return predict(std::span(&profile, 1), plan);
}

/// Costs of the plan's stages: as predicted, each stage's times `slower` times as long.
inline StepCosts stage_costs_of(const Profile& profile, const Plan& plan, double slower) {
  const Program program = plan_program(plan);
  StepCosts costs;
  const auto ranges = layer_ranges(plan.sizes);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    StageCost cost = stage_cost(
        profile, ranges[s], program, static_cast<int>(s),
        plan.operations.empty() ? save_everything(ranges[s].size()) : plan.operations[s]);
    for (const auto member :
         {&StageCost::forward, &StageCost::backward, &StageCost::recompute,
          &StageCost::backward_input, &StageCost::backward_weight, &StageCost::step})
      cost.*member *= slower;
    costs.stages.push_back(cost);
  }
  return costs;
}

inline Timeline timeline_of(const Plan& plan, const StepCosts& costs) {
  Timeline timeline = simulate(plan_program(plan), costs).timeline;
  timeline.name = plan.schedule;
  timeline.time_unit = "s";
  return timeline;
}

/// A step as it would be measured: everything a little slower than planned, stage 1 a lot.
inline Timeline measured_timeline(const Profile& profile, const Plan& plan) {
  StepCosts costs = stage_costs_of(profile, plan, 1.08);
  if (costs.stages.size() > 1) {
    costs.stages[1].forward *= 1.15;
    costs.stages[1].backward *= 1.15;
    costs.stages[1].recompute *= 1.15;
  }
  return timeline_of(plan, costs);
}

inline StepMetrics sample_metrics(std::int64_t step, const Plan& plan, double seconds,
                                  Noise* noise) {
  StepMetrics metrics;
  const auto at = static_cast<double>(step);
  metrics.step = step;
  metrics.unix_time = 1.7e9 + at * seconds;
  metrics.loss = 1.1 + 3.1 * std::exp(-at / 90) + 0.12 * (*noise)();
  metrics.learning_rate = 3e-4 * std::min(1.0, at / 40);
  metrics.seconds = seconds * (1 + 0.03 * (*noise)()) * (step == 1 ? 4 : 1);
  metrics.samples_per_second = static_cast<double>(plan.global_batch) / metrics.seconds;
  metrics.bubble = 0.31 + 0.015 * (*noise)();
  metrics.gradient_norm = 0.8 + 2 * std::exp(-at / 60) + 0.1 * (*noise)();
  for (const std::int64_t peak : plan.peak_bytes) metrics.peak_bytes.push_back(peak * 97 / 100);
  return metrics;
}

inline RunFacts sample_facts() {
  RunFacts facts;
  facts.model = "gpt";
  facts.host = "node0";
  facts.machine = "a machine of tests";
  facts.cores = 8;
  facts.threads_per_rank = 2;
  facts.num_steps = 300;
  facts.versions = {{"pipewright", "0.1.0"}, {"libtorch", "1.13.1"}};
  facts.strategy = {{"schedule", "1f1b"}, {"recompute", "none"}, {"precision", "float32"}};
  return facts;
}

struct SampleOptions {
  bool recompute = false;
  bool profile = true;
  std::int64_t steps = 300;
  std::string name = "sample";
};

/// A run that was stopped once, continued from an older checkpoint and finished. Returns its path.
inline std::string make_sample_run(const std::string& parent, const SampleOptions& options = {}) {
  const Profile profile = sample_profile();
  Plan plan = sample_plan(profile);
  if (options.recompute) plan = recomputing(profile, plan);
  const Timeline measured = measured_timeline(profile, plan);
  const double seconds = StepTimes(measured).step_time();
  RunFolder folder = RunFolder::create(parent, options.name, sample_facts(), 1.7e9);
  folder.write_config("seed = 1\n[model]\nname = \"gpt\"\n[pipeline]\nranks = 4\n");
  folder.write_plan(plan);
  if (options.profile) folder.write_profile(profile);
  folder.write_predicted(timeline_of(plan, stage_costs_of(profile, plan, 1)));
  Noise noise;
  const auto train = [&](std::int64_t from, std::int64_t to) {
    RunLog log(folder, true, 1.7e9);
    for (std::int64_t step = from + 1; step <= to; ++step) {
      StepMetrics metrics = sample_metrics(step, plan, seconds, &noise);
      log.step(metrics);
      if (step % 25 != 0) continue;
      log.validation({step,
                      metrics.unix_time,
                      {{"loss", metrics.loss + 0.15}, {"accuracy", std::exp(-metrics.loss / 2)}}});
    }
    folder.write_measured(to, measured);
  };
  const std::int64_t stop = options.steps / 2;
  const std::int64_t saved = stop - stop / 10;
  folder.begin_session(0, 1.7e9);
  train(0, stop);
  folder.end_session(stop, Outcome::kStopped, "Ctrl-C",
                     1.7e9 + seconds * static_cast<double>(stop));
  folder.begin_session(saved, 1.7e9 + 100);
  train(saved, options.steps);
  folder.end_session(options.steps, Outcome::kFinished, "",
                     1.7e9 + 100 + seconds * static_cast<double>(options.steps - saved));
  return folder.path();
}

}  // namespace pipewright::testing_run
