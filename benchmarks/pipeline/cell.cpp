#include "benchmarks/pipeline/cell.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "benchmarks/common/cores.h"
#include "benchmarks/common/measure.h"
#include "benchmarks/common/processes.h"
#include "benchmarks/common/stolen.h"
#include "benchmarks/common/waiting_model.h"
#include "pipewright/models/gpt.h"
#include "pipewright/plan/search.h"
#include "pipewright/profile/measure.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/trace/breakdown.h"
#include "pipewright/train/trainer.h"

namespace pipewright::bench {
namespace {

constexpr int kWarmUp = 2;

Sequence make_model(const Sizes& s, bool later = false) {
  constexpr std::int64_t kRoundsARow = 1'000'000;
  if (s.work == "registers") return make_register_model(s.layers, kRoundsARow, s.dim);
  if (s.work == "clock") return make_busy_model(s.layers, 1e-3 * s.row_ms, s.dim);
  torch::manual_seed(1);
  return make_gpt({.layers = s.layers,
                   .dim = s.dim,
                   .heads = s.heads,
                   .seq = s.seq,
                   .vocab = s.vocab,
                   .tied = false,
                   .later = later});
}

Batch make_batch(const Sizes& s, int rows) {
  torch::manual_seed(2);
  if (s.work != "transformer") {
    return {.inputs = {torch::randn({rows, s.seq, s.dim})},
            .targets = {torch::zeros({rows, s.seq, s.dim})}};
  }
  return {.inputs = {torch::randint(s.vocab, {rows, s.seq})},
          .targets = {torch::randint(s.vocab, {rows, s.seq})}};
}

Loss loss_of(const Sizes& s) {
  return s.work == "transformer" ? cross_entropy() : mean_squared_error();
}

std::unique_ptr<torch::optim::Optimizer> sgd(const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, 1e-3);
}

Strategy strategy_of(const Cell& cell) {
  Strategy strategy;
  strategy.ranks = cell.ranks;
  strategy.micro_batches = cell.micro_batches;
  strategy.schedule = cell.schedule;
  strategy.threads_per_rank = 1;
  strategy.transport = cell.way == "processes" ? "gloo" : "threads";
  strategy.link_bandwidth = cell.link;
  if (cell.recompute) strategy.recompute = RecomputeMode::kAll;
  return strategy;
}

/// The bubbles of the schedule for the times of one step: where every stage takes what the mean of
/// them took, where each takes its own mean, where each instruction takes what it took.
void explain_bubble(const Cell& cell, const Timeline& timeline, std::size_t num_stages,
                    Measured* measured) {
  StepCosts own;
  own.stages = measured_costs(timeline, num_stages);
  StageCost mean;
  for (const StageCost& stage : own.stages) {
    const auto share = 1.0 / static_cast<double>(num_stages);
    mean.forward += share * stage.forward;
    mean.backward += share * stage.backward;
    mean.backward_input += share * stage.backward_input;
    mean.backward_weight += share * stage.backward_weight;
    mean.recompute += share * stage.recompute;
  }
  StepCosts equal;
  equal.stages.assign(num_stages, mean);
  const Program program = make_schedule(
      {.name = cell.schedule, .ranks = cell.ranks, .micro_batches = cell.micro_batches});
  measured->formula = simulate(program, equal).times.bubble_fraction();
  measured->of_stages = simulate(program, own).times.bubble_fraction();
  measured->of_times = simulate(program, own, {.as_in = &timeline}).times.bubble_fraction();
}

double page_faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_minflt);
}

/// Steps in this process, alone or as one of several.
Measured run_steps(const Sizes& sizes, const Cell& cell, int steps) {
  Trainer trainer(make_model(sizes, cell.way == "processes"), loss_of(sizes), sgd,
                  strategy_of(cell));
  const Batch batch = make_batch(sizes, sizes.batch);
  for (int i = 0; i < kWarmUp; ++i) trainer.step(batch);
  Measured measured;
  measured.fastest = 1e9;
  StepResult last;
  measured.faults = -page_faults();
  measured.stolen = -stolen_seconds();
  measured.step = seconds_of([&] {
    for (int i = 0; i < steps; ++i) {
      last = trainer.step(batch);
      measured.busy += StepTimes(last.timeline).busy() / steps;
      measured.fastest = std::min(measured.fastest, last.seconds);
    }
  });
  measured.step /= steps;
  measured.faults = (measured.faults + page_faults()) / steps;
  measured.stolen = (measured.stolen + stolen_seconds()) / steps;
  if (cell.way == "processes") return measured;
  explain_bubble(cell, last.timeline, trainer.sizes().size(), &measured);
  const Breakdown parts = breakdown(StepTimes(last.timeline));
  for (const BreakdownPart& part : kBreakdownParts)
    measured.parts.push_back(parts.*part.value / parts.total);
  return measured;
}

std::vector<std::string> arguments_of(const Sizes& s, const Cell& cell, int steps) {
  std::vector<std::string> all = {"--layers",        fmt::to_string(s.layers),
                                  "--dim",           fmt::to_string(s.dim),
                                  "--heads",         fmt::to_string(s.heads),
                                  "--seq",           fmt::to_string(s.seq),
                                  "--vocab",         fmt::to_string(s.vocab),
                                  "--batch",         fmt::to_string(s.batch),
                                  "--steps",         fmt::to_string(steps),
                                  "--ranks",         fmt::to_string(cell.ranks),
                                  "--micro-batches", fmt::to_string(cell.micro_batches),
                                  "--schedules",     cell.schedule,
                                  "--work",          s.work,
                                  "--row-ms",        fmt::to_string(s.row_ms)};
  if (cell.recompute) all.emplace_back("--recompute");
  return all;
}

}  // namespace

Measured measure(const Sizes& sizes, const Cell& cell, int steps) {
  if (cell.way == "threads") return run_steps(sizes, cell, steps);
  Measured measured;
  for (const nlohmann::json& rank : run_ranks(cell.ranks, arguments_of(sizes, cell, steps))) {
    measured.step = std::max(measured.step, rank.at("step").get<double>());
    measured.fastest = std::max(measured.fastest, rank.at("fastest").get<double>());
    measured.busy = rank.at("busy").get<double>();  // each of them knows all
    measured.stolen = rank.at("stolen").get<double>();
  }
  return measured;
}

void measure_cores(const Sizes& sizes, const Cell& cell, int steps, Measured* measured) {
  const Program program = make_schedule(
      {.name = cell.schedule, .ranks = cell.ranks, .micro_batches = cell.micro_batches});
  const Sequence model = make_model(sizes);
  const auto stages = Trainer(model, loss_of(sizes), sgd, strategy_of(cell)).sizes();
  const Batch tokens = make_batch(sizes, sizes.batch);
  const std::vector<std::int64_t> shape = {sizes.batch, sizes.seq, sizes.dim};
  std::vector<Share> shares;
  for (int rank = 0; rank < cell.ranks; ++rank) {
    Share share = share_of(model, stages, program, rank, sizes.seq, sizes.dim);
    const auto has = [&](std::size_t stage) { return program.placement[stage] == rank; };
    share.batch.inputs = {has(0) ? tokens.inputs[0] : torch::randn(shape)};
    share.batch.targets = {has(stages.size() - 1) ? tokens.targets[0] : torch::zeros(shape)};
    share.loss = has(stages.size() - 1) ? loss_of(sizes) : mean_squared_error();
    share.strategy.micro_batches = cell.micro_batches;
    share.strategy.recompute = strategy_of(cell).recompute;
    shares.push_back(std::move(share));
  }
  const CoreTimes times(std::move(shares), sgd, steps);
  const Simulation played = times.play(program);
  measured->cores = played.step_time();
  measured->cores_bubble = played.times.bubble_fraction();
  measured->slowest_core = times.slowest();
}

nlohmann::json measure_rank(const Sizes& sizes, const Cell& cell, int steps) {
  const Measured measured = run_steps(sizes, cell, steps);
  return {{"step", measured.step},
          {"fastest", measured.fastest},
          {"busy", measured.busy},
          {"stolen", measured.stolen}};
}

Profile profile_of(const Sizes& sizes, int rows) {
  const Batch batch = make_batch(sizes, rows);
  MeasureOptions options;
  options.optimizer = sgd;
  options.model = sizes.work == "transformer" ? "gpt" : sizes.work;
  return measure_profile(make_model(sizes), loss_of(sizes), batch.inputs, batch.targets, options);
}

double predicted_seconds(const Profile& profile, const Sizes& sizes, const Cell& cell) {
  const ScheduleInfo& schedule = find_schedule(cell.schedule);
  Plan plan;
  plan.schedule = cell.schedule;
  plan.ranks = cell.ranks;
  plan.chunks = schedule.default_chunks;
  plan.global_batch = sizes.batch;
  plan.micro_batches = cell.micro_batches;
  plan.micro_batch_size = profile.micro_batch_size;
  Cell alike = cell;
  alike.way = "threads";
  plan.sizes = Trainer(make_model(sizes), loss_of(sizes), sgd, strategy_of(alike)).sizes();
  if (cell.recompute) {
    for (const int size : plan.sizes) plan.operations.push_back(keep_checkpoints(size, {1}, false));
  }
  return predict(std::span(&profile, 1), plan, cell.link).step_seconds;
}

}  // namespace pipewright::bench
