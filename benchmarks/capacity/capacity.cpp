// How large a model fits when every rank has so much memory? GPipe's table 1, for the transformer.
//
//     bench_capacity [--memory BYTES] [--ranks 1,2,4,8] [--device cuda:0] [--run] [--json FILE]
//     [--svg FILE]
//
// Without pipeline or recompute, with recompute on one rank, and over K ranks, each with its own
// cap: the most blocks for which a plan keeps every rank under it, by the measured costs of a model
// of two blocks. --run then trains each of them for two steps and holds the measured peaks against
// the cap. Ranks are threads; on one GPU they share it, each metered by itself.

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "benchmarks/common/headline.h"
#include "benchmarks/common/measure.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/models/gpt.h"
#include "pipewright/optim/adam.h"
#include "pipewright/plan/search.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/profile/measure.h"
#include "pipewright/torch/blas.h"
#include "pipewright/trace/plot.h"
#include "pipewright/train/trainer.h"

namespace pipewright::bench {
namespace {

struct Options {
  GptOptions gpt = {.dim = 128, .heads = 4, .seq = 64, .vocab = 512};
  int batch = 32;
  std::string memory = "64MiB";
  std::string ranks = "1,2,4,8";
  std::string device = "cpu";
  bool run = false;
  std::string json, svg;
};

/// The largest model of a way to train, and what it took when it was trained.
struct Found {
  std::string name;
  int ranks = 1;
  int blocks = 0;
  Plan plan;
  std::int64_t parameters = 0;
  std::vector<std::int64_t> peak_bytes = {};  // measured
  double step_seconds = 0;
};

Batch make_batch(const Options& o, int rows) {
  torch::manual_seed(2);
  const auto on = torch::dtype(torch::kLong).device(torch::Device(o.device));
  return {.inputs = {torch::randint(o.gpt.vocab, {rows, o.gpt.seq}, on)},
          .targets = {torch::randint(o.gpt.vocab, {rows, o.gpt.seq}, on)}};
}

OptimizerFactory optimizer() { return adam(torch::optim::AdamOptions(1e-4)); }

Sequence make_model(const Options& o, int blocks) {
  torch::manual_seed(1);
  GptOptions gpt = o.gpt;
  gpt.layers = blocks;
  gpt.tied = false;
  return make_gpt(gpt);
}

/// Of two blocks.
Profile measure_small(const Options& o, int rows) {
  const Sequence model = make_model(o, 2);
  for (const Layer& layer : model.layers()) layer.module->to(torch::Device(o.device));
  const Batch batch = make_batch(o, rows);
  MeasureOptions options;
  options.optimizer = optimizer();
  options.model = "gpt";
  options.repeats = 3;
  return measure_profile(model, cross_entropy(), batch.inputs, batch.targets, options);
}

/// Of so many: all blocks cost what the second one cost.
Profile with_blocks(const Profile& small, int blocks) {
  Profile profile = small;
  const LayerCost block = small.layers[2];
  profile.layers = {small.layers[0]};
  profile.layers.insert(profile.layers.end(), static_cast<std::size_t>(blocks), block);
  profile.layers.insert(profile.layers.end(), small.layers.begin() + 3, small.layers.end());
  return profile;
}

std::int64_t parameters_of(const Profile& profile) {
  std::int64_t bytes = 0;
  for (const LayerCost& layer : profile.layers) bytes += layer.parameter_bytes;
  return bytes / static_cast<std::int64_t>(sizeof(float));
}

/// Blocks in equal parts, but for `less_first` and `less_last`, which the embedding and the head
/// take the place of.
std::optional<std::vector<int>> split(int blocks, int ranks, int less_first, int less_last) {
  std::vector<int> sizes(static_cast<std::size_t>(ranks));
  const int rows = blocks + less_first + less_last;
  for (int r = 0; r < ranks; ++r)
    sizes[static_cast<std::size_t>(r)] = rows / ranks + (r < rows % ranks ? 1 : 0);
  sizes.front() -= less_first;
  sizes.back() -= less_last;
  if (*std::min_element(sizes.begin(), sizes.end()) < 1) return std::nullopt;
  sizes.front() += 1;  // the embedding
  sizes.back() += 2;   // norm and head
  return sizes;
}

/// Recompute as little as fits; none where nothing does.
std::optional<Plan> budget_plan(const Profile& profile, int blocks, int ranks, int micro_batches,
                                std::int64_t memory) {
  constexpr int kMostLess = 6;
  BudgetPlanner planner(profile);
  Plan plan;
  plan.ranks = ranks;
  plan.micro_batches = micro_batches;
  plan.micro_batch_size = profile.micro_batch_size;
  plan.global_batch = static_cast<std::int64_t>(micro_batches) * profile.micro_batch_size;
  plan.memory_bytes = memory;
  for (int last = 0; last <= (ranks > 1 ? kMostLess : 0); ++last) {
    for (int first = 0; first <= (ranks > 1 ? kMostLess : 0); ++first) {
      const auto sizes = split(blocks, ranks, first, last);
      if (!sizes) continue;
      plan.sizes = *sizes;
      BudgetPlan found = planner.plan(plan.sizes, plan_program(plan), memory);
      if (!found.feasible()) continue;
      plan.operations = std::move(found.operations);
      plan.offload = std::move(found.offload);
      Plan predicted = predict(std::span(&profile, 1), plan);
      const auto& peaks = predicted.peak_bytes;
      if (*std::max_element(peaks.begin(), peaks.end()) <= memory) return predicted;
    }
  }
  return std::nullopt;
}

/// One rank, the whole batch, nothing run again.
std::optional<Plan> plain_plan(const Profile& profile, std::int64_t memory) {
  Plan plan;
  plan.micro_batch_size = profile.micro_batch_size;
  plan.global_batch = profile.micro_batch_size;
  plan.sizes = {static_cast<int>(profile.layers.size())};
  plan = predict(std::span(&profile, 1), plan);
  if (plan.peak_bytes[0] > memory) return std::nullopt;
  return plan;
}

/// The most blocks that a way fits.
Found largest(const std::string& name, int ranks, const Profile& small,
              const std::function<std::optional<Plan>(const Profile&, int blocks)>& plan_of) {
  Found found;
  found.name = name;
  found.ranks = ranks;
  const auto fits = [&](int blocks) {
    const Profile profile = with_blocks(small, blocks);
    auto plan = plan_of(profile, blocks);
    if (!plan) return false;
    found.blocks = blocks;
    found.plan = std::move(*plan);
    found.parameters = parameters_of(profile);
    return true;
  };
  int most = std::max(1, ranks);
  while (fits(most)) most *= 2;
  for (int least = found.blocks; most - least > 1;) {
    const int middle = (least + most) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return found;
}

void train(const Options& o, Found* found) {
  Strategy strategy = strategy_of(found->plan);
  strategy.devices = {o.device};
  Trainer trainer(make_model(o, found->blocks), cross_entropy(), optimizer(), strategy);
  const Batch batch = make_batch(o, static_cast<int>(found->plan.global_batch));
  trainer.step(batch);  // afterwards the optimizer has its state
  const StepResult result = trainer.step(batch);
  found->peak_bytes = result.peak_bytes;
  found->step_seconds = result.seconds;
}

void print(const Found& found, std::int64_t memory) {
  const auto most = [](const std::vector<std::int64_t>& bytes) {
    return bytes.empty() ? std::int64_t{0} : *std::max_element(bytes.begin(), bytes.end());
  };
  const std::int64_t measured = most(found.peak_bytes);
  fmt::print("| {} | {} | {} | {:.1f} | {} | {} | {} |\n", found.name, found.ranks, found.blocks,
             1e-6 * static_cast<double>(found.parameters),
             format_bytes(static_cast<double>(most(found.plan.peak_bytes))),
             measured == 0 ? "-"
                           : fmt::format("{} ({})", format_bytes(static_cast<double>(measured)),
                                         measured <= memory ? "fits" : "OVER"),
             found.step_seconds == 0 ? "-" : fmt::format("{:.2f}", found.step_seconds));
  std::fflush(stdout);
}

void write(const Options& o, const std::vector<Found>& all) {
  if (!o.json.empty()) {
    nlohmann::json lines = nlohmann::json::array();
    for (const Found& one : all) {
      lines.push_back({{"way", one.name},
                       {"ranks", one.ranks},
                       {"blocks", one.blocks},
                       {"parameters", one.parameters},
                       {"predicted_peak_bytes", one.plan.peak_bytes},
                       {"peak_bytes", one.peak_bytes},
                       {"step_seconds", one.step_seconds}});
    }
    write_file(o.json, lines.dump(1) + "\n", "--json");
  }
  if (o.svg.empty()) return;
  Plot plot{fmt::format("The largest model with {} a rank", o.memory),
            "ranks",
            "parameters, millions",
            {}};
  PlotSeries ours{"pipewright", {}}, linear{"as many times that of one rank", {}, true, false};
  for (const Found& one : all) {
    if (one.name == "plain") continue;
    ours.points.emplace_back(one.ranks, 1e-6 * static_cast<double>(one.parameters));
    linear.points.emplace_back(one.ranks, one.ranks * ours.points.front().second);
  }
  plot.series = {ours, linear};
  write_file(o.svg, to_svg(plot), "--svg");
}

void measure(const Options& o) {
  const std::int64_t memory = parse_bytes(o.memory, "--memory");
  fmt::print("width {}, {} heads, {} tokens, vocabulary {}, batch {}, Adam, {} a rank\n\n",
             o.gpt.dim, o.gpt.heads, o.gpt.seq, o.gpt.vocab, o.batch, o.memory);
  fmt::print(
      "| way | ranks | blocks | parameters, millions | predicted peak | measured | step, s |\n"
      "|---|---|---|---|---|---|---|\n");
  std::vector<Found> all;
  all.push_back(largest("plain", 1, measure_small(o, o.batch),
                        [&](const Profile& profile, int) { return plain_plan(profile, memory); }));
  const Profile one_row = measure_small(o, 1);
  for (const int ranks : numbers_of(o.ranks, "--ranks")) {
    all.push_back(largest(ranks == 1 ? "recompute" : "recompute, pipeline", ranks, one_row,
                          [&](const Profile& profile, int blocks) {
                            return budget_plan(profile, blocks, ranks, o.batch, memory);
                          }));
  }
  for (Found& found : all) {
    if (o.run && found.blocks > 0) train(o, &found);
    print(found, memory);
  }
  if (all[0].blocks == 0 || all[1].blocks == 0)
    throw InvalidArgument("--memory", fmt::format("not one block fits in {} a rank", o.memory));
  const auto parameters = [](const Found& found) { return static_cast<double>(found.parameters); };
  bench::add({"parameters that fit, recompute over plain (GPipe: 2.8)",
              fmt::format("{:.1f}", parameters(all[1]) / parameters(all[0]))});
  bench::add({fmt::format("... {} ranks over 1 (GPipe's 8: 6.7)", all.back().ranks),
              fmt::format("{:.2f}", parameters(all.back()) / parameters(all[1])),
              fmt::format("linear: {:.1f}", 0.84 * all.back().ranks),
              parameters(all.back()) >= 0.84 * all.back().ranks * parameters(all[1])});
  write(o, all);
}

}  // namespace
}  // namespace pipewright::bench

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  pipewright::bench::Options o;
  CLI::App app("How large a model fits");
  app.add_option("--dim", o.gpt.dim, "Width")->capture_default_str();
  app.add_option("--heads", o.gpt.heads, "Heads")->capture_default_str();
  app.add_option("--seq", o.gpt.seq, "Tokens")->capture_default_str();
  app.add_option("--vocab", o.gpt.vocab, "Tokens there are")->capture_default_str();
  app.add_option("--batch", o.batch, "Sentences a step")->capture_default_str();
  app.add_option("--memory", o.memory, "Of every rank")->capture_default_str();
  app.add_option("--ranks", o.ranks)->capture_default_str();
  app.add_option("--device", o.device, "cpu or cuda:0")->capture_default_str();
  app.add_flag("--run", o.run, "Train what was found for two steps");
  app.add_option("--json", o.json, "A file for the raw figures");
  app.add_option("--svg", o.svg, "A file for a plot");
  CLI11_PARSE(app, argc, argv);
  try {
    setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
    pipewright::bench::measure(o);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_capacity: {}\n", error.what());
    return 2;
  }
}
