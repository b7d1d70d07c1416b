// What does each way to recompute cost, and does the budget beat the others at their own peak?
//
//     bench_recompute [--svg FILE] [--scale-svg FILE] [--blocks B] [--dim D] [--repeats R]
//
// Modes: every way on one model, measured peak and step time beside what was predicted from a
// profile. Then, for every n and sqrt, a budget as large as their measured peak. Scale: measured
// peaks of activations over N, M, K and L against GPipe's O(N + L/K * N/M).

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/plan/search.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/profile/measure.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/torch/blas.h"
#include "pipewright/trace/plot.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

struct Options {
  int blocks = 16;
  int dim = 128;
  int seq = 64;
  int rows = 8;  // of a micro-batch
  int micro_batches = 4;
  int repeats = 9;
  std::string svg;
  std::string scale_svg;
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int dim)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})))),
        up(register_module("up", torch::nn::Linear(dim, 4 * dim))),
        down(register_module("down", torch::nn::Linear(4 * dim, dim))) {}

  torch::Tensor forward(const torch::Tensor& x) { return x + down(torch::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

/// Layers of very different weight: of equal ones, equal distances are as good as it gets.
Sequence make_model(const Options& o, int blocks) {
  torch::manual_seed(1);
  Sequence model;
  for (int i = 0; i < blocks; ++i) {
    model.add(fmt::format("block{}", i), Block(o.dim), {.checkpoint = i % 3 == 0});
    model.add(fmt::format("tanh{}", i), torch::nn::Tanh());
  }
  return model;
}

Batch noise(const Options& o, int rows) {
  torch::manual_seed(2);
  return {.inputs = {torch::randn({rows, o.seq, o.dim})},
          .targets = {torch::randn({rows, o.seq, o.dim})}};
}

std::unique_ptr<torch::optim::Optimizer> sgd(const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, 1e-3);
}

Profile profile_of(const Options& o, const Sequence& model, int rows, int repeats) {
  const Batch one = noise(o, rows);
  MeasureOptions options;
  options.optimizer = sgd;
  options.repeats = repeats;
  return measure_profile(model, mean_squared_error(), one.inputs, one.targets, options);
}

/// A way to train, what it is predicted to take and what it takes.
struct Way {
  std::string name;
  Strategy strategy;
  Plan predicted;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> seconds;
  std::vector<double> predictions;  // each from a profile taken beside a step
  std::int64_t peak_bytes = 0;

  double median() const { return bench::median(seconds); }
  double predicted_seconds() const { return bench::median(predictions); }
  double mib() const { return static_cast<double>(peak_bytes) / (1 << 20); }
};

class Comparison {
 public:
  explicit Comparison(const Options& o)
      : o_(o), profile_(profile_of(o, make_model(o, o.blocks), o.rows, o.repeats)) {}

  Way make(const std::string& name, RecomputeMode mode, int every = 1, std::int64_t budget = 0) {
    Way way;
    way.name = name;
    way.strategy.micro_batches = o_.micro_batches;
    way.strategy.threads_per_rank = 1;
    way.strategy.recompute = mode;
    way.strategy.recompute_every = every;
    way.strategy.memory_budget = budget;
    way.strategy.profile = profile_;
    try {
      way.trainer = std::make_unique<Trainer>(make_model(o_, o_.blocks), mean_squared_error(), sgd,
                                              way.strategy);
    } catch (const InvalidArgument&) {  // a budget that the planner does not dare to promise
      return way;
    }
    way.predicted = predicted(way.strategy);
    return way;
  }

  /// A step of each, for its peak.
  void warm_up(std::vector<Way>* ways) const {
    const Batch batch = noise(o_, o_.rows * o_.micro_batches);
    for (Way& way : *ways) {
      if (way.trainer != nullptr) way.peak_bytes = way.trainer->step(batch).peak_bytes[0];
    }
  }

  /// Rounds of a profile and these steps, one after the other: machines are faster and slower by
  /// the minute.
  void run(const std::vector<Way*>& steps) const {
    const Batch batch = noise(o_, o_.rows * o_.micro_batches);
    const Sequence model = make_model(o_, o_.blocks);
    for (int i = 0; i < o_.repeats; ++i) {
      const Profile now = profile_of(o_, model, o_.rows, 3);
      for (Way* way : steps) {
        if (way->trainer == nullptr) continue;
        const StepResult result = way->trainer->step(batch);
        way->seconds.push_back(result.seconds);
        way->predictions.push_back(predict(std::span(&now, 1), way->predicted).step_seconds);
        way->peak_bytes = std::max(way->peak_bytes, result.peak_bytes[0]);
      }
    }
  }

 private:
  /// The stage's operations, written down from the definitions of the modes.
  std::vector<Operation> operations(const Strategy& s) const {
    const int layers = static_cast<int>(profile_.layers.size());
    switch (s.recompute) {
      case RecomputeMode::kAll: return keep_checkpoints(layers, {1}, false);
      case RecomputeMode::kEvery:
        return keep_checkpoints(layers, every(layers, s.recompute_every), true);
      case RecomputeMode::kSqrt: return keep_checkpoints(layers, sqrt_checkpoints(layers), true);
      case RecomputeMode::kNamed: {
        std::vector<int> named;
        for (int i = 0; i < o_.blocks; i += 3) named.push_back(2 * i + 1);
        return keep_checkpoints(layers, named, true);
      }
      default: return save_everything(layers);
    }
  }

  Plan predicted(const Strategy& s) const {
    Plan plan;
    plan.global_batch = static_cast<std::int64_t>(o_.rows) * o_.micro_batches;
    plan.micro_batches = o_.micro_batches;
    plan.micro_batch_size = o_.rows;
    plan.sizes = {static_cast<int>(profile_.layers.size())};
    if (s.recompute == RecomputeMode::kBudget) {
      const Program program = plan_program(plan);
      plan.operations =
          BudgetPlanner(profile_).plan(plan.sizes, program, s.memory_budget).operations;
    } else if (s.recompute != RecomputeMode::kNone) {
      plan.operations = {operations(s)};
    }
    plan.offload.resize(plan.operations.size());
    return predict(std::span(&profile_, 1), plan);
  }

  const Options& o_;
  Profile profile_;
};

void print(const Way& way) {
  if (way.trainer == nullptr) {
    fmt::print("{:<18} refused\n", way.name);
    return;
  }
  const double measured = way.median();
  fmt::print("{:<18}{:>10.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>9.1f} %\n", way.name, way.mib(),
             static_cast<double>(way.predicted.peak_bytes[0]) / (1 << 20), 1e3 * measured,
             1e3 * way.predicted_seconds(), 100 * (way.predicted_seconds() / measured - 1));
}

/// Of two ways with two steps each a round, one within the other's (a b b a), the second's time
/// over the first's: the quarter, the half and three quarters of the rounds.
std::array<double, 3> ratios(const Way& first, const Way& second) {
  std::vector<double> all;
  for (std::size_t i = 0; i + 1 < first.seconds.size(); i += 2) {
    all.push_back((second.seconds[i] + second.seconds[i + 1]) /
                  (first.seconds[i] + first.seconds[i + 1]));
  }
  std::sort(all.begin(), all.end());
  return {all[all.size() / 4], all[all.size() / 2], all[all.size() * 3 / 4]};
}

/// `budgets` are those of ways from `first` on.
void add_headlines(const std::vector<Way>& ways, const std::vector<Way>& budgets,
                   std::size_t first) {
  double worst = 0, slowest = 0, fastest = 1e9, highest = 0;
  for (const auto* list : {&ways, &budgets}) {
    for (const Way& way : *list) {
      if (way.trainer != nullptr)
        worst = std::max(worst, std::abs(way.predicted_seconds() / way.median() - 1));
    }
  }
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    if (budgets[i].trainer == nullptr) continue;
    const double ratio = ratios(ways[first + i], budgets[i])[1];
    slowest = std::max(slowest, ratio);
    fastest = std::min(fastest, ratio);
    highest = std::max(highest, budgets[i].mib() / ways[first + i].mib());
  }
  bench::add({"predicted step times over all recompute modes, the worst",
              fmt::format("{:.1f} % off", 100 * worst), "within 10 %", worst <= 0.1});
  bench::add({"budget over every n and sqrt at their own peak, step time",
              fmt::format("{:.2f} to {:.2f}", fastest, slowest), "at most 1.02, below 1 somewhere",
              slowest <= 1.02 && fastest < 1});
  bench::add({"and its measured peak over theirs, the highest", fmt::format("{:.3f}", highest),
              "at most 1", highest <= 1});
}

/// Every way, and budgets of what every n and sqrt are predicted to take: predictions are as far
/// above what is measured for all of them, so that measured peaks are equal, or below.
void compare_modes(const Options& o) {
  Comparison comparison(o);
  std::vector<Way> ways;
  ways.push_back(comparison.make("none", RecomputeMode::kNone));
  ways.push_back(comparison.make("all", RecomputeMode::kAll));
  ways.push_back(comparison.make("named", RecomputeMode::kNamed));
  ways.push_back(comparison.make("sqrt", RecomputeMode::kSqrt));
  for (const int n : {1, 2, 3, 4, 6, 8, 12, 16})
    ways.push_back(comparison.make(fmt::format("every {}", n), RecomputeMode::kEvery, n));
  comparison.warm_up(&ways);
  const std::size_t first_with_peak = 3;  // sqrt and every n
  std::vector<Way> budgets;
  for (std::size_t i = first_with_peak; i < ways.size(); ++i) {
    budgets.push_back(comparison.make("  budget of " + ways[i].name, RecomputeMode::kBudget, 1,
                                      ways[i].predicted.peak_bytes[0]));
  }
  comparison.warm_up(&budgets);
  std::vector<Way*> steps;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    steps.push_back(&ways[i]);
    if (i < first_with_peak) continue;
    Way* budget = &budgets[i - first_with_peak];
    steps.insert(steps.end(), {budget, budget, &ways[i]});
  }
  comparison.run(steps);
  fmt::print("{:<18}{:>10}{:>12}{:>12}{:>12}{:>11}\n", "mode", "peak MiB", "predicted", "step ms",
             "predicted", "error");
  std::string compared =
      "\nstep of a budget over that of the mode with its peak, a quarter, half and "
      "three quarters of the rounds:\n";
  Plot plot{"Step time at equal measured peak", "peak, MiB", "step, ms", {}};
  plot.series = {{"every n and sqrt", {}, false}, {"budget of the same peak", {}, false}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    print(ways[i]);
    if (i < first_with_peak) continue;
    const Way& budget = budgets[i - first_with_peak];
    print(budget);
    plot.series[0].points.emplace_back(ways[i].mib(), 1e3 * ways[i].median());
    if (budget.trainer == nullptr) continue;
    plot.series[1].points.emplace_back(ways[i].mib(), 1e3 * budget.median());
    const auto [quarter, half, most] = ratios(ways[i], budget);
    compared += fmt::format("{:<18}{:>8.3f}{:>8.3f}{:>8.3f}\n", ways[i].name, quarter, half, most);
  }
  fmt::print("{}", compared);
  if (!o.svg.empty()) write_file(o.svg, to_svg(plot), "--svg");
  add_headlines(ways, budgets, first_with_peak);
}

/// Peak activations of GPipe with recompute against N + L/K * N/M: of the stage's inputs of all
/// micro-batches, and of one micro-batch's layers.
void measure_scale(const Options& o) {
  Plot plot{"Peak activations of GPipe with recompute",
            "N x input + L/K x N/M x layer, MiB",
            "measured, MiB",
            {}};
  plot.series = {{"measured", {}, false}, {"formula", {}, true, false}};
  fmt::print("\n{:>5}{:>5}{:>4}{:>5}{:>14}{:>14}\n", "N", "M", "K", "L", "formula MiB",
             "measured MiB");
  for (const int n : {16, 32, 64}) {
    for (const int m : {2, 4, 8}) {
      for (const int k : {1, 2, 4}) {
        for (const int blocks : {8, 16}) {
          const Sequence model = make_model(o, blocks);
          const Profile profile = profile_of(o, model, n / m, 1);  // its bytes
          Strategy strategy;
          strategy.ranks = k;
          strategy.micro_batches = m;
          strategy.schedule = "gpipe";
          strategy.recompute = RecomputeMode::kAll;
          Trainer trainer(model, mean_squared_error(), sgd, strategy);
          trainer.step(noise(o, n));
          const StepResult result = trainer.step(noise(o, n));
          // The middle of the pipeline: neither the caller's batch nor the loss.
          const std::size_t rank = k > 2 ? 1 : 0;
          const LayerRange range = layer_ranges(trainer.sizes())[rank];
          double layers = 0, fixed = 0;
          for (std::size_t i = range.first; i < range.last; ++i) {
            const LayerCost& cost = profile.layers[i];
            layers += static_cast<double>(cost.saved_bytes - cost.idle_bytes);
            fixed += static_cast<double>(cost.parameter_bytes + cost.gradient_bytes);
          }
          const double inputs = k > 2 ? static_cast<double>(profile.input_bytes) * m : 0;
          const double formula = (inputs + layers) / (1 << 20);
          const double measured =
              (static_cast<double>(result.peak_bytes[rank]) - fixed) / (1 << 20);
          plot.series[0].points.emplace_back(formula, measured);
          fmt::print("{:>5}{:>5}{:>4}{:>5}{:>14.2f}{:>14.2f}\n", n, m, k, 2 * blocks, formula,
                     measured);
        }
      }
    }
  }
  double most = 0;
  for (const auto& point : plot.series[0].points) most = std::max(most, point.first);
  plot.series[1].points = {{0, 0}, {most, most}};
  write_file(o.scale_svg, to_svg(plot), "--scale-svg");
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("What recompute costs");
  app.add_option("--blocks", o.blocks, "Blocks of the model");
  app.add_option("--dim", o.dim, "Width");
  app.add_option("--seq", o.seq, "Tokens");
  app.add_option("--rows", o.rows, "Rows of a micro-batch");
  app.add_option("--micro-batches", o.micro_batches, "Micro-batches");
  app.add_option("--repeats", o.repeats, "Timed repeats");
  app.add_option("--svg", o.svg, "Where to draw step times over peaks");
  app.add_option("--scale-svg", o.scale_svg, "Where to draw peaks over the formula");
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  compare_modes(o);
  std::fflush(stdout);
  if (!o.scale_svg.empty()) measure_scale(o);
  return 0;
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  try {
    return pipewright::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_recompute: {}\n", error.what());
    return 2;
  }
}
