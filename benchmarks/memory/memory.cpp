// What does a memory cap cost? BERT, masked-LM step, Adam.
//
//     bench_memory --device cuda --effective 256 --caps 8GiB,12GiB,16GiB,24GiB,32GiB
//     bench_memory --device cuda --largest 32GiB
//     bench_memory                                   # a small layout on the CPU
//
// --effective: a batch of so many sentences in micro-batches. For every cap the layers are measured
// under it, the plan search finds plans, the best few (--try) are run for some steps, and the
// fastest of them is measured. --largest: the largest single batch
// that each way fits under a cap when run, beside the predicted one, and its speed. One JSON object
// a line.

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "benchmarks/common/measure.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/memory/meter.h"
#include "pipewright/models/bert.h"
#include "pipewright/optim/adam.h"
#include "pipewright/recompute/modes.h"
#include "pipewright/torch/blas.h"
#include "pipewright/train/plan_model.h"
#include "pipewright/train/trainer.h"
#include "pipewright/train/try_plans.h"

namespace pipewright {
namespace {

using bench::parts_of;

struct Options {
  std::string device = "cpu";
  BertOptions bert = {.layers = 6, .dim = 128, .heads = 4, .seq = 64, .vocab = 2000};
  std::string caps;
  std::string largest;
  std::string modes = "none,all,budget";
  std::string profiles;
  std::string precisions = "fp32,bf16";
  int effective = 64;
  int steps = 3;
  std::size_t tries = 4;
  int most_measured = 256;  // sentences of a micro-batch
  bool offload = false;
  double reserve = 0.04;  // of the cap: for what the allocator cannot use

  torch::Device where() const { return torch::Device(device); }
  bool on_gpu() const { return where().is_cuda(); }
};

Precision precision_of(const std::string& name) {
  if (name == "fp32") return Precision::kFull;
  if (name == "bf16") return Precision::kBf16;
  throw InvalidArgument("--precisions", fmt::format("'{}'; there are fp32 and bf16", name));
}

OptimizerFactory optimizer() { return adam(torch::optim::AdamOptions(1e-4)); }

/// Sentences with 15 % of their tokens masked.
Batch sentences(const Options& o, int rows) {
  torch::manual_seed(3);
  const auto masked = std::max<std::int64_t>(1, o.bert.seq * 15 / 100);
  const auto on = torch::dtype(torch::kLong).device(o.where());
  return {.inputs = {torch::randint(o.bert.vocab, {rows, o.bert.seq}, on),
                     torch::rand({rows, o.bert.seq}, torch::device(o.where()))
                         .argsort(std::int64_t{1}, false)
                         .slice(1, 0, masked)
                         .contiguous()},
          .targets = {torch::randint(o.bert.vocab, {rows, masked}, on)}};
}

/// Made once: to draw BERT-Large's weights takes seconds. What they are does not matter here.
Sequence the_model(const Options& o) {
  static std::optional<Sequence> model;
  if (!model) {
    torch::manual_seed(1);
    model = make_bert(o.bert);
  }
  for (const Layer& layer : model->layers()) {
    if (!layer.module) continue;
    layer.module->to(o.where());
    for (torch::Tensor& parameter : layer.module->parameters())
      parameter.mutable_grad() = torch::Tensor();
  }
  return *model;
}

void cap_memory(const Options& o, std::int64_t bytes) {
  if (o.on_gpu()) limit_device_memory(o.where(), bytes);
}

PlannedModel plan(const Options& o, Precision precision, const PlanRequest& request) {
  MeasureOptions options;
  options.precision = precision;
  options.model = "bert";
  options.optimizer = optimizer();
  const auto most = std::min<std::int64_t>(request.global_batch, o.most_measured);
  return plan_model(the_model(o), cross_entropy(), sentences(o, static_cast<int>(most)), request,
                    options);
}

/// Runs the plans; fastest first.
std::vector<TriedPlan> run(const Options& o, const std::vector<Plan>& plans, Precision precision,
                           const TryOptions& options) {
  const auto trainer = [&](const Plan& plan) {
    Strategy strategy = strategy_of(plan);
    strategy.precision = precision;
    strategy.devices = {o.device};
    return std::make_unique<Trainer>(the_model(o), cross_entropy(), optimizer(), strategy);
  };
  return try_plans(plans, trainer, sentences(o, static_cast<int>(plans[0].global_batch)), options);
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1LL << 30); }

/// What plans may use of a cap; less after every one that ran out of memory, since what the
/// allocator cannot use is only an estimate.
std::int64_t budget_of(const Options& o, std::int64_t cap, int failed) {
  return static_cast<std::int64_t>((1 - (1 + failed) * o.reserve) * static_cast<double>(cap));
}

/// False where it ran out of memory.
bool measure_plan(const Options& o, const Plan& plan, const std::string& precision,
                  nlohmann::ordered_json* out) {
  const TriedPlan tried =
      run(o, {plan}, precision_of(precision), {.plans = 1, .warm_up = 2, .steps = o.steps})[0];
  if (!tried.failure.empty()) {
    (*out)["last_failure"] = tried.failure;
    return false;
  }
  (*out)["sentences_per_second"] = static_cast<double>(plan.global_batch) / tried.step_seconds;
  (*out)["step_seconds"] = tried.step_seconds;
  (*out)["predicted_step_seconds"] = plan.step_seconds;
  (*out)["micro_batch_size"] = plan.micro_batch_size;
  (*out)["recompute"] = plan.recompute();
  (*out)["offload"] = plan.offloads();
  (*out)["peak_gib"] = gib(tried.peak_bytes[0]);
  (*out)["predicted_peak_gib"] = gib(plan.peak_bytes[0]);
  return true;
}

/// The fastest of the best plans when run; none where all of them ran out of memory.
std::optional<Plan> best_of(const Options& o, const std::vector<Plan>& plans,
                            const std::string& precision, nlohmann::ordered_json* out) {
  if (plans.empty()) return std::nullopt;
  const auto tried =
      run(o, plans, precision_of(precision), {.plans = o.tries, .warm_up = 1, .steps = 1});
  auto& list = (*out)["tried"] = nlohmann::ordered_json::array();
  for (const TriedPlan& one : tried) {
    list.push_back({{"micro_batch_size", one.plan.micro_batch_size},
                    {"recompute", one.plan.recompute()},
                    {"offload", one.plan.offloads()},
                    {"predicted_step_seconds", one.plan.step_seconds},
                    {"step_seconds", one.step_seconds},
                    {"out_of_memory", !one.failure.empty()}});
  }
  if (!tried[0].failure.empty()) return std::nullopt;
  return tried[0].plan;
}

void measure_cap(const Options& o, const std::string& cap, const std::string& name) {
  const std::int64_t bytes = parse_bytes(cap, "--caps");
  cap_memory(o, bytes);
  PlanRequest request;
  request.global_batch = o.effective;
  request.offload = o.offload;
  request.memory_bytes = budget_of(o, bytes, 0);
  const PlannedModel planned = plan(o, precision_of(name), request);
  const auto& profiles = planned.profiles;
  if (!o.profiles.empty()) {
    for (const Profile& profile : profiles)
      write_file(fmt::format("{}/{}_{}.json", o.profiles, name, profile.micro_batch_size),
                 to_json(profile), "--profiles");
  }
  nlohmann::ordered_json out = {{"cap", cap}, {"precision", name}, {"effective", o.effective}};
  for (int failed = 0; failed < 5; ++failed) {
    request.memory_bytes = budget_of(o, bytes, failed);
    const PlanSearch found = failed == 0 ? planned.search : search_plans(profiles, request);
    const auto best = best_of(o, found.plans, name, &out);
    if (best && measure_plan(o, *best, name, &out)) {
      out["rounds_without_a_plan_that_ran"] = failed;
      break;
    }
    cap_memory(o, bytes);
  }
  fmt::print("{}\n", out.dump());
  std::fflush(stdout);
}

/// The largest batch that fits when run, up to a thirty-second of it: down from the predicted one
/// or up. 0: none does.
int largest_that_fits(int predicted, const std::function<bool(int)>& fits) {
  const int step = std::max(1, predicted / 16);
  int good = 0, bad = 0;
  for (int rows = predicted; rows > 0 && (good == 0 || bad == 0);) {
    (fits(rows) ? good : bad) = rows;
    rows = bad == 0 ? rows + step : rows - step;
  }
  while (bad - good > std::max(1, predicted / 32)) {
    const int middle = (good + bad) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

/// The largest single batch under the cap: predicted, then found by running, as one without
/// predictions would.
void measure_largest(const Options& o, const std::string& mode, const std::string& name) {
  const std::int64_t bytes = parse_bytes(o.largest, "--largest");
  cap_memory(o, bytes);
  PlanRequest any;
  any.global_batch = o.most_measured;
  const auto profiles = plan(o, precision_of(name), any).profiles;
  const std::int64_t budget = budget_of(o, bytes, 0);
  const int layers = static_cast<int>(profiles[0].layers.size());
  int least = 0;  // the largest by prediction
  // `beyond`: of a batch that should not fit, as if there were as much more memory.
  const auto plan_of = [&, least = &least](int rows, bool beyond) -> std::optional<Plan> {
    PlanRequest request;
    request.global_batch = rows;
    const double more = beyond ? static_cast<double>(rows) / *least : 1;
    request.memory_bytes =
        mode == "budget" ? static_cast<std::int64_t>(more * static_cast<double>(budget)) : 0;
    request.offload = o.offload;
    request.most_micro_batches = 1;
    const PlanSearch found = search_plans(profiles, request);
    if (found.plans.empty()) return std::nullopt;
    Plan plan = found.plans[0];
    if (mode == "all") {  // each block from its input
      std::vector<int> checkpoints = {1};
      for (int layer = 2; layer < layers; layer += 3) checkpoints.push_back(layer);
      plan.operations = {keep_checkpoints(layers, checkpoints, false)};
      plan = predict(profiles, plan);
    }
    if (plan.peak_bytes[0] > budget && !beyond) return std::nullopt;
    return plan;
  };
  int most = 1;
  while (plan_of(most, false)) least = most, most *= 2;
  while (most - least > 1) {
    const int middle = (least + most) / 2;
    (plan_of(middle, false) ? least : most) = middle;
  }
  nlohmann::ordered_json out = {{"cap", o.largest}, {"mode", mode}, {"precision", name}};
  out["predicted_batch"] = least;
  const auto fits = [&](int rows) {
    cap_memory(o, bytes);
    const auto plan = plan_of(rows, rows > least);
    if (!plan) return false;
    const TriedPlan tried =
        run(o, {*plan}, precision_of(name), {.plans = 1, .warm_up = 1, .steps = 1})[0];
    return tried.failure.empty() && tried.peak_bytes[0] <= bytes;  // a CPU has no cap
  };
  const int found = largest_that_fits(least, fits);
  out["batch"] = found;
  cap_memory(o, bytes);
  if (found > 0) measure_plan(o, *plan_of(found, found > least), name, &out);
  fmt::print("{}\n", out.dump());
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  Options o;
  CLI::App app("What a memory cap costs");
  app.add_option("--device", o.device, "cpu or cuda:0");
  app.add_option("--layers", o.bert.layers, "Blocks");
  app.add_option("--dim", o.bert.dim, "Width");
  app.add_option("--heads", o.bert.heads, "Heads");
  app.add_option("--seq", o.bert.seq, "Tokens");
  app.add_option("--vocab", o.bert.vocab, "Tokens there are");
  app.add_option("--caps", o.caps, "Memory caps to plan for, e.g. 8GiB,12GiB");
  app.add_option("--largest", o.largest, "A memory cap to find the largest batch under");
  app.add_option("--modes", o.modes, "Of --largest: none, all, budget");
  app.add_flag("--offload", o.offload, "Plans may move what they keep to the host's memory");
  app.add_option("--profiles", o.profiles, "A folder to write what was measured to");
  app.add_option("--precisions", o.precisions, "fp32,bf16");
  app.add_option("--effective", o.effective, "Sentences a step, for --caps");
  app.add_option("--steps", o.steps, "Timed steps");
  app.add_option("--try", o.tries, "Plans that are run for two steps, for --caps");
  app.add_option("--reserve", o.reserve, "Share of the cap that plans leave alone");
  CLI11_PARSE(app, argc, argv);
  // Without it, up to a fifth of a cap is lost to holes between blocks of different sizes.
  setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  if (o.caps.empty() && o.largest.empty()) o.caps = "24MiB,32MiB,48MiB", o.largest = "48MiB";
  for (const std::string& precision : parts_of(o.precisions)) {
    for (const std::string& cap : parts_of(o.caps)) measure_cap(o, cap, precision);
    if (o.largest.empty()) continue;
    for (const std::string& mode : parts_of(o.modes)) measure_largest(o, mode, precision);
  }
  return 0;
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  try {
    return pipewright::main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_memory: {}\n", error.what());
    return 2;
  }
}
