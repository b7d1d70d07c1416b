// What does an instruction cost, and does a pipeline keep to its formula, up to 64 ranks? Layers
// wait instead of computing: so two cores are enough for any number of ranks.

#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>

#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "benchmarks/common/waiting_model.h"
#include "pipewright/base/error.h"
#include "pipewright/plan/plan.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/torch/blas.h"
#include "pipewright/train/trainer.h"

using namespace pipewright;
using bench::cpu_seconds;
using bench::median;

namespace {

struct Options {
  std::string ranks = "2,4,8,16,32,64";
  std::string schedules = "1f1b,eager-1f1b,zb-h1,pipedream";
  double wait = 10;  // milliseconds
  int factor = 2;    // micro-batches a rank
  int steps = 3;
};

constexpr int kWarmUpSteps = 1;
constexpr int kRows = 4;
constexpr int kManyMicroBatches = 128;  // where the cost of an instruction is looked for

struct Size {
  int ranks = 1;
  int micro_batches = 1;
  int layers_a_rank = 1;
  std::string schedule = "1f1b";
  double wait = 0;  // seconds a layer
};

Plan plan_of(const Size& size) {
  Plan plan;
  plan.schedule = size.schedule;
  plan.ranks = size.ranks;
  plan.micro_batches = size.micro_batches;
  return plan;
}

/// Of the schedule itself: equal stages, backward twice as long as forward, no cost but that.
double bubble_of_schedule(const Size& size) {
  const Program program = plan_program(plan_of(size));
  StageCost cost;
  cost.forward = cost.backward_input = cost.backward_weight = 1;
  cost.backward = 2;
  const StepCosts costs{std::vector<StageCost>(static_cast<std::size_t>(size.ranks), cost), {}};
  const Simulation sim = simulate(program, costs, {.record_timeline = false});
  return (sim.asynchronous ? sim.asynchronous->steady : sim.times).bubble_fraction();
}

struct Measured {
  std::vector<double> seconds, bubbles;
  double cpu_seconds = 0;  // a step
  double heap_bytes = 0;   // with trainer and timeline
};

Measured measure(const Size& size, int steps) {
  const double before = static_cast<double>(mallinfo2().uordblks);
  Strategy strategy;
  strategy.ranks = size.ranks;
  strategy.micro_batches = size.micro_batches;
  strategy.schedule = size.schedule;
  strategy.threads_per_rank = 1;
  const auto sgd = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, 0.01);
  };
  Trainer trainer(bench::make_waiting_model(size.layers_a_rank * size.ranks, size.wait, 1),
                  mean_squared_error(), sgd, strategy);
  const auto x = torch::zeros({kRows * size.micro_batches, 1});
  Measured measured;
  double cpu = 0;
  const auto take = [&](const StepResult& result) {
    if (result.pending) return;
    if (result.step == kWarmUpSteps - 1) cpu = cpu_seconds();
    if (result.step < kWarmUpSteps) return;
    const double busy = StepTimes(result.timeline).busy();
    measured.seconds.push_back(result.seconds);
    measured.bubbles.push_back(1 - busy / (size.ranks * result.seconds));
  };
  const int all = kWarmUpSteps + steps;
  for (int i = 0; i < all; ++i) take(trainer.step({.inputs = {x}, .targets = {x}}));
  measured.cpu_seconds = (cpu_seconds() - cpu) / steps;
  measured.heap_bytes = static_cast<double>(mallinfo2().uordblks) - before;
  return measured;
}

void compare_bubble(const Size& size, int steps) {
  const bool asynchronous = find_schedule(size.schedule).asynchronous;
  const Measured m = measure(size, asynchronous ? 4 * size.ranks + steps : steps);
  const double formula = bubble_of_schedule(size);
  const double measured = median(
      asynchronous ? std::vector<double>(m.bubbles.end() - steps, m.bubbles.end()) : m.bubbles);
  fmt::print(
      "{:<12} K={:<3} M={:<4} step {:8.1f} ms  bubble {:5.2f} %, the schedule's own {:5.2f} %\n",
      size.schedule, size.ranks, size.micro_batches, 1e3 * median(m.seconds), 100 * measured,
      100 * formula);
  bench::add({fmt::format("bubble of {}, K={} M={}, layers that wait", size.schedule, size.ranks,
                          size.micro_batches),
              fmt::format("{:.1f} %", 100 * measured),
              fmt::format("the schedule's {:.1f} % and 3 points", 100 * formula),
              measured <= formula + 0.03});
}

/// Time of all threads; memory by what a longer step takes more.
void print_cost(const Size& size, int steps) {
  Size longer = size;
  longer.micro_batches *= 2;
  const auto instructions = [](const Size& of) {
    return static_cast<double>(plan_program(plan_of(of)).num_instructions());
  };
  measure(longer, 1);  // whatever is made once
  const Measured one = measure(size, steps);
  const Measured two = measure(longer, steps);
  fmt::print(
      "K={:<3} M={:<4} {} layers a rank: {:6.1f} us of CPU and {:6.0f} bytes an instruction\n",
      size.ranks, size.micro_batches, size.layers_a_rank,
      1e6 * one.cpu_seconds / instructions(size),
      (two.heap_bytes - one.heap_bytes) / (instructions(longer) - instructions(size)));
}

void run(const Options& o) {
  const std::vector<int> all_ranks = bench::numbers_of(o.ranks, "--ranks");
  for (const std::string& schedule : bench::parts_of(o.schedules)) find_schedule(schedule);
  fmt::print("Layers that do nothing:\n");
  for (const int ranks : all_ranks)
    print_cost({.ranks = ranks, .micro_batches = kManyMicroBatches}, o.steps);
  for (const int micro_batches : {32, 512})
    print_cost({.ranks = 4, .micro_batches = micro_batches}, o.steps);
  for (const int layers : {4, 16})
    print_cost({.ranks = 4, .micro_batches = kManyMicroBatches, .layers_a_rank = layers}, o.steps);
  fmt::print("Layers that wait {} ms forward, {} ms backward:\n", o.wait, 2 * o.wait);
  for (const std::string& schedule : bench::parts_of(o.schedules)) {
    for (const int ranks : all_ranks) {
      const int micro_batches = find_schedule(schedule).asynchronous ? 1 : o.factor * ranks;
      compare_bubble({.ranks = ranks,
                      .micro_batches = micro_batches,
                      .schedule = schedule,
                      .wait = 1e-3 * o.wait},
                     o.steps);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  CLI::App app(
      "What an instruction costs, and how near a pipeline of waiting layers is to its formula.");
  Options o;
  app.add_option("--ranks", o.ranks, "with commas")->capture_default_str();
  app.add_option("--schedules", o.schedules, "with commas")->capture_default_str();
  app.add_option("--wait", o.wait, "milliseconds of a layer's forward")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("--factor", o.factor, "micro-batches over ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", o.steps)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  try {
    app.parse(argc, argv);
    run(o);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_instructions: {}\n", error.what());
    return 1;
  }
}
