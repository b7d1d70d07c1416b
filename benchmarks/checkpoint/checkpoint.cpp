// How long does a save hold up the training, and how long does it take?

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "pipewright/models/gpt.h"
#include "pipewright/torch/blas.h"
#include "pipewright/train/trainer.h"

using namespace pipewright;

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int layers = 8;
  int dim = 512;
  int ranks = 2;
  int rounds = 5;
  int steps = 5;  // between two saves
  std::string dir = (std::filesystem::temp_directory_path() / "pipewright-bench").string();
};

double seconds_of(const auto& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Batch make_batch() {
  const auto tokens = torch::randint(65, {8, 65});
  return {.inputs = {tokens.slice(1, 0, 64).contiguous()},
          .targets = {tokens.slice(1, 1, 65).contiguous()}};
}

Trainer make_trainer(const Options& o) {
  torch::manual_seed(1);
  Strategy strategy;
  strategy.ranks = o.ranks;
  strategy.micro_batches = 4;
  const auto adamw = [](const Parameters& parameters) {
    return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-3));
  };
  return {make_gpt({.layers = o.layers, .dim = o.dim, .heads = 8, .seq = 64, .vocab = 65}),
          cross_entropy(), adamw, strategy};
}

struct Times {
  std::vector<double> step, step_beside, held, write, blocking;
  std::int64_t bytes = 0;
};

/// One save, and the step that runs while it is written.
void save_beside(const Options& o, Trainer* trainer, const Batch& batch, Times* times) {
  SaveReport report;
  trainer->save(o.dir, {.keep = 1, .done = [&](const SaveReport& r) { report = r; }});
  times->step_beside.push_back(seconds_of([&] { trainer->step(batch); }));
  trainer->wait_for_save();
  times->held.push_back(report.held_seconds);
  times->write.push_back(report.write_seconds);
  times->bytes = report.bytes;
}

Times measure(const Options& o) {
  Times times;
  Trainer trainer = make_trainer(o);
  const Batch batch = make_batch();
  for (int i = 0; i < 3; ++i) trainer.step(batch);
  for (int round = 0; round < o.rounds; ++round) {
    for (int i = 0; i < o.steps; ++i)
      times.step.push_back(seconds_of([&] { trainer.step(batch); }));
    save_beside(o, &trainer, batch, &times);
    times.blocking.push_back(
        seconds_of([&] { trainer.save(o.dir, {.keep = 1, .background = false}); }));
  }
  return times;
}

void run(const Options& o) {
  const Times times = measure(o);
  Trainer other = make_trainer(o);
  const double resume = seconds_of([&] { other.resume(o.dir); });
  const double bytes = static_cast<double>(times.bytes);
  fmt::print("checkpoint of {:.0f} MB, AdamW, {} ranks; medians of {}\n", 1e-6 * bytes, o.ranks,
             o.rounds);
  fmt::print("step alone             {:7.3f} s\n", median(times.step));
  fmt::print("step beside the write  {:7.3f} s\n", median(times.step_beside));
  fmt::print("save() holds up        {:7.3f} s  ({:.1f} GB/s)\n", median(times.held),
             1e-9 * bytes / median(times.held));
  fmt::print("written after          {:7.3f} s  ({:.2f} GB/s)\n", median(times.write),
             1e-9 * bytes / median(times.write));
  fmt::print("save(), not beside     {:7.3f} s\n", median(times.blocking));
  fmt::print("resume()               {:7.3f} s\n", resume);
}

}  // namespace

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  Options o;
  CLI::App app("How long does a save hold up the training?");
  app.add_option("--layers", o.layers);
  app.add_option("--dim", o.dim);
  app.add_option("--ranks", o.ranks);
  app.add_option("--rounds", o.rounds);
  app.add_option("--dir", o.dir, "where checkpoints are written; removed afterwards");
  CLI11_PARSE(app, argc, argv);
  o.dir += fmt::format("-{}", ::getpid());
  run(o);
  std::filesystem::remove_all(o.dir);
  return 0;
}
