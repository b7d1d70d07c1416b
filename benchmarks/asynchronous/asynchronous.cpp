// What does a pipeline gain that never empties, what does it hold for that, and does a model still
// learn as well?
//
//     bench_asynchronous [--ranks K] [--rounds R] [--dim D] [--layers L] [--work W]
//         [--curves-svg FILE]
//
// Schedules take turns in one run; medians of rounds are compared. The curves train the same small
// models by synchronous and by delayed updates, on the same batches.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "benchmarks/common/cores.h"
#include "benchmarks/common/evenness.h"
#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "benchmarks/common/stolen.h"
#include "benchmarks/common/waiting_model.h"
#include "pipewright/app/run.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/config/read.h"
#include "pipewright/memory/heap.h"
#include "pipewright/models/gpt.h"
#include "pipewright/nn/linear.h"
#include "pipewright/run/folder.h"
#include "pipewright/run/measured_costs.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "pipewright/torch/blas.h"
#include "pipewright/trace/plot.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

struct Options {
  int ranks = 2;
  int rounds = 5;
  int dim = 128;
  int layers = 8;
  int steps = 24;  // a round
  std::string work = "transformer";
  double row_ms = 0.25;  // of "clock"
  std::string curves_svg;
};

constexpr int kSeq = 64;
constexpr int kRowsAMicroBatch = 4;
constexpr int kVocabulary = 256;

struct Way {
  std::string schedule;
  int micro_batches;
};

/// x + down(gelu(up(x))).
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int dim)
      : up(register_module("up", torch::nn::Linear(dim, 4 * dim))),
        down(register_module("down", torch::nn::Linear(4 * dim, dim))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = torch::gelu(accumulating_linear(x, up->weight, up->bias));
    return x + accumulating_linear(hidden, down->weight, down->bias);
  }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

/// As many blocks a rank, and next to nothing else: stages that are equally long.
Sequence equal_blocks(const Options& o) {
  Sequence model;
  bench::add_positions(&model, kSeq, o.dim);
  for (int i = 0; i < o.layers; ++i) model.add(fmt::format("block{}", i), Block(o.dim));
  return model;
}

Sequence transformer(const Options& o) {
  GptOptions gpt;
  gpt.layers = o.layers;
  gpt.dim = o.dim;
  gpt.heads = 4;
  gpt.seq = kSeq;
  gpt.vocab = kVocabulary;
  gpt.tied = false;
  return make_gpt(gpt);
}

Batch batch_of(const Options& o, int rows) {
  if (o.work != "transformer")
    return {{torch::randn({rows, kSeq, o.dim})}, {torch::zeros({rows, kSeq, o.dim})}};
  return {{torch::randint(kVocabulary, {rows, kSeq})}, {torch::randint(kVocabulary, {rows, kSeq})}};
}

Sequence model_of(const Options& o) {
  constexpr std::int64_t kRounds = 250'000;
  if (o.work == "registers") return bench::make_register_model(o.layers, kRounds, o.dim);
  if (o.work == "clock") return bench::make_busy_model(o.layers, 1e-3 * o.row_ms, o.dim);
  return o.work == "blocks" ? equal_blocks(o) : transformer(o);
}
Loss loss_of(const Options& o) {
  return o.work == "transformer" ? cross_entropy() : mean_squared_error();
}

std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), 1e-3);
}

/// One schedule: a trainer, and what its rounds took.
class Side {
 public:
  Side(const Options& o, const Way& way) : way_(way), even_in_(bench::work_like(o.work)) {
    torch::manual_seed(1);
    Strategy strategy;
    strategy.ranks = o.ranks;
    strategy.micro_batches = way.micro_batches;
    strategy.schedule = way.schedule;
    strategy.threads_per_rank = 1;
    const int least = least_between_updates(way.schedule, o.ranks);
    strategy.merge_steps = (least + way.micro_batches - 1) / way.micro_batches;
    strategy_ = strategy;
    trainer_ = std::make_unique<Trainer>(model_of(o), loss_of(o), sgd, strategy);
    batch_ = batch_of(o, way.micro_batches * kRowsAMicroBatch);
  }

  /// Memory and threads.
  void warm_up() {
    constexpr int kSteps = 8;
    for (int i = 0; i < kSteps; ++i) trainer_->step(batch_);
    trainer_->drain();
  }

  /// Steps in a row, as many as it takes to fill the pipeline several times; the first quarter, in
  /// which it fills, does not count, nor does the last.
  void run_round(int least) {
    constexpr int kFills = 16;
    const bool fills = find_schedule(way_.schedule).asynchronous;
    const int steps = std::max(least, fills ? kFills * strategy_.ranks / way_.micro_batches : 0);
    const double before = bench::evenness_of_cores(strategy_.ranks, even_in_);
    std::vector<StepResult> results;
    const auto keep = [&](StepResult result) {
      if (!result.pending) results.push_back(std::move(result));
    };
    const double stolen = bench::stolen_seconds();
    const double wall = bench::seconds_of([&] {
      for (int i = 0; i < steps; ++i) keep(trainer_->step(batch_));
      for (StepResult& result : trainer_->drain()) keep(std::move(result));
    });
    stolen_.push_back((bench::stolen_seconds() - stolen) / (strategy_.ranks * wall));
    const std::size_t first = results.size() / 4;
    double seconds = 0;
    double busy = 0;
    for (std::size_t i = first; i < results.size() - results.size() / 4; ++i) {
      seconds += results[i].seconds;
      busy += StepTimes(results[i].timeline).busy();
    }
    const auto count = static_cast<double>(results.size() - results.size() / 4 - first);
    seconds_.push_back(seconds / count);
    bubbles_.push_back(1 - busy / (strategy_.ranks * seconds));
    if (std::min(before, bench::evenness_of_cores(strategy_.ranks, even_in_)) >= bench::kEven)
      even_bubbles_.push_back(bubbles_.back());
    last_ = std::move(results[results.size() / 2]);
  }

  double seconds() const { return bench::median(seconds_); }
  double bubble() const { return bench::median(bubbles_); }
  /// Of the rounds before and after which the cores were even, and how many those were.
  std::string bubble_on_even_cores() const {
    if (even_bubbles_.empty()) return "-";
    return fmt::format("{:.1f} % ({})", 100 * bench::median(even_bubbles_), even_bubbles_.size());
  }
  /// By the host, of the ranks' time.
  double stolen() const { return bench::median(stolen_); }
  double samples_a_second() const { return way_.micro_batches * kRowsAMicroBatch / seconds(); }
  const Way& way() const { return way_; }
  const StepResult& last() const { return last_; }

  /// With the times that were measured.
  double predicted_bubble() const {
    StepCosts costs;
    costs.stages = measured_costs(last_.timeline, trainer_->sizes().size());
    return steady_bubble(simulate(program(), costs));
  }

  /// The same schedule with what the cores take where nothing waits.
  void play(const bench::CoreTimes& times) {
    const Simulation played = times.play(program());
    cores_bubbles_.push_back(steady_bubble(played));
    cores_seconds_.push_back(played.asynchronous
                                 ? played.asynchronous->mini_batch_time(way_.micro_batches)
                                 : played.step_time());
  }
  double cores_bubble() const { return bench::median(cores_bubbles_); }
  double cores_seconds() const { return bench::median(cores_seconds_); }

  const std::vector<int>& sizes() const { return trainer_->sizes(); }
  Program program() const {
    return make_schedule({.name = way_.schedule,
                          .ranks = strategy_.ranks,
                          .micro_batches = way_.micro_batches,
                          .updates_every = strategy_.merge_steps});
  }

  /// Of a rank.
  double parameter_bytes(int rank) const {
    std::size_t layer = 0;
    for (int r = 0; r < rank; ++r)
      layer += static_cast<std::size_t>(trainer_->sizes()[static_cast<std::size_t>(r)]);
    double bytes = 0;
    for (int i = 0; i < trainer_->sizes()[static_cast<std::size_t>(rank)]; ++i, ++layer) {
      const auto& module = trainer_->model().layers()[layer].module;
      if (!module) continue;
      for (const auto& parameter : module->parameters())
        bytes += static_cast<double>(parameter.nbytes());
    }
    return bytes;
  }

 private:
  static double steady_bubble(const Simulation& simulation) {
    return simulation.asynchronous ? simulation.asynchronous->steady.bubble_fraction()
                                   : simulation.times.bubble_fraction();
  }

  Way way_;
  std::function<bench::Work()> even_in_;  // what cores do to be compared
  Strategy strategy_;
  std::unique_ptr<Trainer> trainer_;
  Batch batch_;
  std::vector<double> seconds_;
  std::vector<double> bubbles_;
  std::vector<double> even_bubbles_;
  std::vector<double> stolen_;
  std::vector<double> cores_seconds_;
  std::vector<double> cores_bubbles_;
  StepResult last_;
};

/// What the ranks' cores do with their stages where nothing waits. `side`: of 1f1b.
bench::CoreTimes core_times(const Options& o, const Side& side) {
  const Program program = side.program();
  const Sequence model = model_of(o);
  const int rows = side.way().micro_batches * kRowsAMicroBatch;
  const Batch whole = batch_of(o, rows);
  std::vector<bench::Share> shares;
  for (int rank = 0; rank < o.ranks; ++rank) {
    bench::Share share = bench::share_of(model, side.sizes(), program, rank, kSeq, o.dim);
    const bool last = rank + 1 == o.ranks;
    share.batch.inputs = {rank == 0 ? whole.inputs[0] : torch::randn({rows, kSeq, o.dim})};
    share.batch.targets = {last ? whole.targets[0] : torch::zeros({rows, kSeq, o.dim})};
    share.loss = last ? loss_of(o) : mean_squared_error();
    share.strategy.micro_batches = side.way().micro_batches;
    shares.push_back(std::move(share));
  }
  return {std::move(shares), sgd, o.steps};
}

void measure_speed(const Options& o) {
  std::vector<std::unique_ptr<Side>> sides;
  for (const int micro_batches : {1, 2, o.ranks * 2}) {
    for (const char* schedule : {"1f1b", "pipedream", "pipedream-2bw", "eager-pipedream-2bw"})
      sides.push_back(std::make_unique<Side>(o, Way{schedule, micro_batches}));
  }
  for (auto& side : sides) side->warm_up();
  for (int round = 0; round < o.rounds; ++round) {
    std::optional<bench::CoreTimes> cores;
    for (auto& side : sides) {
      side->run_round(o.steps);
      if (side->way().schedule == "1f1b") cores.emplace(core_times(o, *side));
      side->play(*cores);
    }
  }
  std::printf("K = %d, %d blocks of width %d, %d rows a micro-batch, %d rounds of %d steps\n\n",
              o.ranks, o.layers, o.dim, kRowsAMicroBatch, o.rounds, o.steps);
  std::printf(
      "| schedule | M | ms a step | samples/s | against 1f1b | bubble | on even cores (rounds) | "
      "stolen | predicted | cores alone | ms over theirs | versions by rank |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  double plain = 0;
  for (const auto& side : sides) {
    if (side->way().schedule == "1f1b") plain = side->samples_a_second();
    std::string versions;
    for (const auto count : side->last().versions) versions += fmt::format("{} ", count);
    std::printf(
        "| %s | %d | %.1f | %.1f | %.2f | %.1f %% | %s | %.1f %% | %.1f %% | %.1f %% | %.3f | %s "
        "|\n",
        side->way().schedule.c_str(), side->way().micro_batches, 1000 * side->seconds(),
        side->samples_a_second(), side->samples_a_second() / plain, 100 * side->bubble(),
        side->bubble_on_even_cores().c_str(), 100 * side->stolen(), 100 * side->predicted_bubble(),
        100 * side->cores_bubble(), side->seconds() / side->cores_seconds(),
        versions.empty() ? "1 each" : versions.c_str());
    if (side->way().schedule != "1f1b") {
      bench::add(
          {fmt::format("{} over 1f1b, K={} M={}: throughput; bubble, that of its cores alone",
                       side->way().schedule, o.ranks, side->way().micro_batches),
           fmt::format("{:.2f}; {:.1f}, {:.1f} %", side->samples_a_second() / plain,
                       100 * side->bubble(), 100 * side->cores_bubble())});
    }
  }
  std::printf(
      "\nBytes at the peak over those of 1f1b with the same M, and what the copies of weights take "
      "by the formula (versions - 1):\n\n");
  std::printf("| schedule | M | rank | measured | formula |\n|---|---|---|---|---|\n");
  const Side* reference = nullptr;
  for (const auto& side : sides) {
    if (side->way().schedule == "1f1b") reference = side.get();
    if (side.get() == reference || side->way().micro_batches < o.ranks) continue;
    for (std::size_t rank = 0; rank < side->last().peak_bytes.size(); ++rank) {
      const double more =
          static_cast<double>(side->last().peak_bytes[rank] - reference->last().peak_bytes[rank]);
      const double copies = static_cast<double>(side->last().versions[rank] - 1) *
                            side->parameter_bytes(static_cast<int>(rank));
      std::printf("| %s | %d | %zu | %s | %s |\n", side->way().schedule.c_str(),
                  side->way().micro_batches, rank, format_bytes(std::max(0.0, more)).c_str(),
                  format_bytes(copies).c_str());
    }
  }
}

struct Course {
  std::string name;
  std::string config;
};

/// A delayed gradient wants less momentum than Adam has by default, and a rate that falls: with
/// both, the runs end near each other. They learn until little is left to learn.
const std::vector<Course>& courses() {
  static const std::vector<Course> kCourses = {
      {"transformer",
       "[model]\nname = \"gpt\"\nlayers = 4\ndim = 32\nheads = 2\nseq = 32\ntied = false\n"
       "[data]\nname = \"text\"\nbatch = 32\ntokens = 200000\n"
       "[train]\nsteps = 5000\nlr = 1e-3\nwarmup = 300\nbetas = [0.5, 0.99]\nschedule = "
       "\"cosine\"\n"
       "validate_every = 250\nvalidate_batches = 8\n"},
      {"clicks",
       "[model]\nname = \"deepfm\"\ndim = 8\nwidth = 64\ndepth = 2\n"
       "[data]\nname = \"clicks\"\nnumeric = 4\nfields = 8\nvalues = 50\nrows = 60000\nbatch = "
       "256\n"
       "[train]\nsteps = 1200\noptimizer = \"adam\"\nlr = 3e-3\nschedule = \"cosine\"\n"
       "loss = \"binary_cross_entropy\"\nvalidate_every = 60\nvalidate_batches = 20\n"}};
  return kCourses;
}

/// Validation losses over samples.
PlotSeries train_course(const Options& o, const Course& course, const std::string& schedule) {
  const std::string dir =
      (std::filesystem::temp_directory_path() / fmt::format("bench_asynchronous_{}", ::getpid()))
          .string();
  const std::string text = fmt::format(
      "seed = 1\n{}[pipeline]\nranks = {}\nmicro_batches = {}\nschedule = \"{}\"\npartition = "
      "\"estimate\"\nthreads_per_rank = 1\n[checkpoint]\nevery = 0\nkeep_best = false\n[log]\n"
      "tensorboard = false\n",
      course.config, o.ranks, o.ranks, schedule);
  const config::Config config = config::read_text(text, course.name, {}, catalog::known());
  app::train(config, dir, false, {});
  PlotSeries series{fmt::format("{}, {}", course.name, schedule), {}};
  const std::string path = dir + "/" + std::string(kMetricsFile);
  for (const ValidationMetrics& one : parse_metrics(read_file(path, "metrics"), path).validations)
    series.points.emplace_back(static_cast<double>(one.step * config.data.batch),
                               one.values.at("loss"));
  std::filesystem::remove_all(dir);
  return series;
}

void measure_curves(const Options& o) {
  Plot plot{fmt::format("Validation loss, {} ranks", o.ranks), "samples", "validation loss", {}};
  std::printf("\n| model | schedule | last validation loss | over 1f1b's |\n|---|---|---|---|\n");
  for (const Course& course : courses()) {
    double plain = 0;
    for (const char* schedule : {"1f1b", "pipedream", "pipedream-2bw"}) {
      plot.series.push_back(train_course(o, course, schedule));
      const double last = plot.series.back().points.back().second;
      if (schedule == std::string("1f1b")) plain = last;
      std::printf("| %s | %s | %.4f | %+.2f %% |\n", course.name.c_str(), schedule, last,
                  100 * (last / plain - 1));
      bench::add({fmt::format("validation loss of {} by {}, over 1f1b's", course.name, schedule),
                  fmt::format("{:+.1f} %", 100 * (last / plain - 1)), "at most +5 %",
                  last <= 1.05 * plain});
      std::fflush(stdout);
    }
  }
  if (!o.curves_svg.empty()) write_file(o.curves_svg, to_svg(plot), "--curves-svg");
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  pipewright::keep_freed_memory();  // as the program does
  pipewright::Options o;
  CLI::App app("An asynchronous pipeline against 1f1b: speed, memory, learning");
  const CLI::Range positive(1, 1 << 20);
  app.add_option("--ranks", o.ranks, "Ranks, a core each")->check(positive);
  app.add_option("--rounds", o.rounds, "Rounds; their median counts")->check(positive);
  app.add_option("--steps", o.steps, "Steps of a round")->check(positive);
  app.add_option("--dim", o.dim, "Width of the layers")->check(positive);
  app.add_option("--layers", o.layers, "How many")->check(positive);
  app.add_option("--work", o.work,
                 "What layers do. blocks: two products each, as long on every rank; registers: "
                 "arithmetic that touches no memory; clock: that for a set time")
      ->check(CLI::IsMember({"transformer", "blocks", "registers", "clock"}))
      ->capture_default_str();
  app.add_option("--row-ms", o.row_ms, "With --work clock, of a layer for a row")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--curves-svg", o.curves_svg,
                 "Where to draw the validation losses; trains for minutes");
  CLI11_PARSE(app, argc, argv);
  try {
    pipewright::measure_speed(o);
    if (!o.curves_svg.empty()) pipewright::measure_curves(o);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_asynchronous: {}\n", error.what());
    return 2;
  }
}
