#include "pipewright/app/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/config/nearest.h"
#include "pipewright/config/problem.h"
#include "pipewright/config/rules.h"
#include "pipewright/partition/partition.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/torch/compat.h"
#include "pipewright/train/grid.h"
#include "pipewright/train/layout.h"
#include "pipewright/train/pipeline.h"

namespace pipewright::app {
namespace {

using config::KeyError;

constexpr std::size_t kMostNames = 12;  // in a message

std::vector<std::string> names_of(const Sequence& model) {
  std::vector<std::string> names;
  for (const Layer& layer : model.layers()) names.push_back(layer.name);
  return names;
}

std::string in_short(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kMostNames);
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + count, ", "),
                     count < names.size() ? ", ..." : "");
}

void check_transport(const config::Config& config) {
  const auto known = transports();
  if (std::find(known.begin(), known.end(), config.pipeline.transport) != known.end()) return;
  throw KeyError("pipeline.transport",
                 fmt::format("\"{}\" is not in this build, which has {}; write one of these",
                             config.pipeline.transport, fmt::join(known, ", ")));
}

void check_devices(const config::Config& config) {
  const auto count = static_cast<int>(torch::cuda::device_count());
  for (const std::string& name : config.pipeline.devices) {
    const torch::Device device(name);
    if (!device.is_cuda() || (device.has_index() ? device.index() : 0) < count) continue;
    throw KeyError("pipeline.devices",
                   fmt::format("there is no \"{}\": LibTorch sees {} GPUs; write {}", name, count,
                               count == 0 ? std::string("\"cpu\"")
                                          : fmt::format("\"cuda:0\" to \"cuda:{}\"", count - 1)));
  }
}

void check_precision(const config::Config& config) {
  if (config.amp.dtype != "fp16" || compat::kCpuRunsHalf) return;
  const auto& devices = config.pipeline.devices;
  const bool on_gpus =
      !devices.empty() && std::none_of(devices.begin(), devices.end(),
                                       [](const std::string& name) { return name == "cpu"; });
  if (on_gpus) return;
  throw KeyError("amp.dtype",
                 "\"fp16\" does not run on the CPU with this LibTorch; write \"bf16\", or "
                 "pipeline.devices = [\"cuda:0\"]");
}

void check_sizes(const config::Config& config, const Sequence& model) {
  const auto layers = static_cast<std::int64_t>(model.size());
  const std::int64_t chunks = config.pipeline.chunks > 0
                                  ? config.pipeline.chunks
                                  : find_schedule(config.pipeline.schedule).default_chunks;
  const std::int64_t num_stages = config.pipeline.ranks * chunks;
  if (layers < num_stages) {
    throw KeyError("pipeline.ranks",
                   fmt::format("cannot split {} layers into {} stages; write {} or less", layers,
                               num_stages, std::max<std::int64_t>(1, layers / chunks)));
  }
  const auto& sizes = config.pipeline.sizes;
  const auto total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (sizes.empty() || total == layers) return;
  throw KeyError("pipeline.sizes",
                 fmt::format("{} are {} layers, and the model has {} ({}); write {} sizes that add "
                             "up to {}",
                             fmt::join(sizes, " + "), total, layers, in_short(names_of(model)),
                             num_stages, layers));
}

void check_checkpoints(const config::Config& config, const Sequence& model) {
  const auto names = names_of(model);
  for (const std::string& name : config.recompute.checkpoints) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = config::nearest(name, names);
    throw KeyError("recompute.checkpoints",
                   fmt::format("\"{}\" is no layer of the model; {}", name,
                               near.empty() ? fmt::format("its layers are {}", in_short(names))
                                            : fmt::format("did you mean \"{}\"?", near)));
  }
}

std::vector<int> split(const config::Config& config, const Sequence& model, const Profile* profile,
                       const Program& program) {
  const std::string& by = config.pipeline.partition;
  std::vector<double> costs;
  if (by == "parameters") {
    for (const auto& layer : outline_of(model)) {
      double count = 0;
      for (const TensorOutline& tensor : layer)
        count += tensor.is_parameter ? static_cast<double>(tensor.numel()) : 0;
      costs.push_back(count);
    }
  } else if (by == "time" && profile != nullptr) {
    for (const LayerCost& layer : profile->layers)
      costs.push_back(layer.forward_seconds + layer.backward_seconds);
  } else if (by == "memory" && profile != nullptr) {
    std::vector<int> in_flight;
    for (int stage = 0; stage < program.num_stages(); ++stage)
      in_flight.push_back(stage_load(program, stage).in_flight);
    return split_by_bytes(*profile, in_flight);
  } else {
    return {};  // "estimate", or it could not be measured: the trainer's own
  }
  return partition_by_bottleneck(costs, program.num_stages()).sizes;
}

[[noreturn]] void refuse_budget(const config::Config& config, const BudgetPlan& plan,
                                const Program& program) {
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  throw KeyError(
      "recompute.budget",
      fmt::format("{} is too little for rank {}: its parameters, gradients and optimizer take {}, "
                  "and stage {} with {} micro-batches in flight would do with {} in all; write at "
                  "least that, more ranks or more micro-batches",
                  bytes(config.recompute.budget), plan.rank, bytes(plan.static_bytes), plan.stage,
                  stage_load(program, plan.stage).in_flight, bytes(plan.least_bytes)));
}

void fit_budget(const config::Config& config, const Sequence& model, const Profile* profile,
                const Program& program, Strategy* strategy) {
  if (profile == nullptr) {
    throw KeyError("recompute.mode",
                   "\"budget\" needs the layers measured, which takes the whole model on one "
                   "device; write \"sqrt\" or \"all\", or use pipewright plan --profile");
  }
  if (config.recompute.offload && profile->host_bandwidth <= 0) {
    throw KeyError("recompute.offload",
                   "true, but how fast the host's memory is was not measured; write false");
  }
  strategy->sizes = stage_sizes(model, outline_of(model), *strategy, program.num_stages());
  BudgetPlan plan = BudgetPlanner(*profile, config.recompute.offload)
                        .plan(strategy->sizes, program, config.recompute.budget);
  if (!plan.feasible()) refuse_budget(config, plan, program);
  strategy->recompute = RecomputeMode::kPlanned;
  strategy->operations = std::move(plan.operations);
  strategy->offload_stages = std::move(plan.offload);
  strategy->offload =
      std::count(strategy->offload_stages.begin(), strategy->offload_stages.end(), char{1}) > 0;
}

}  // namespace

std::vector<int> split_by_bytes(const Profile& profile, const std::vector<int>& in_flight) {
  const std::size_t layers = profile.layers.size();
  const std::size_t stages = in_flight.size();
  std::vector<double> fixed(layers + 1);  // of the first layers
  std::vector<double> saved(layers + 1);
  for (std::size_t i = 0; i < layers; ++i) {
    const LayerCost& layer = profile.layers[i];
    fixed[i + 1] = fixed[i] + static_cast<double>(layer.static_bytes());
    saved[i + 1] = saved[i] + static_cast<double>(layer.saved_bytes);
  }
  // best[n]: the least bottleneck of the stages so far over the first n layers.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> best(layers + 1, kNone);
  best[0] = 0;
  std::vector<std::vector<std::size_t>> from(stages, std::vector<std::size_t>(layers + 1));
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<double> next(layers + 1, kNone);
    for (std::size_t end = s + 1; end + (stages - s - 1) <= layers; ++end) {
      for (std::size_t begin = s; begin < end; ++begin) {
        const double bytes = fixed[end] - fixed[begin] + in_flight[s] * (saved[end] - saved[begin]);
        const double most = std::max(best[begin], bytes);
        if (most < next[end]) {
          next[end] = most;
          from[s][end] = begin;
        }
      }
    }
    best = std::move(next);
  }
  std::vector<int> sizes(stages);
  std::size_t end = layers;
  for (std::size_t s = stages; s-- > 0; end = from[s][end])
    sizes[s] = static_cast<int>(end - from[s][end]);
  return sizes;
}

void check_fits(const config::Config& config, const Sequence& model) {
  check_transport(config);
  check_devices(config);
  check_precision(config);
  check_sizes(config, model);
  check_checkpoints(config, model);
}

void fit_strategy(const config::Config& config, const Sequence& model,
                  const std::optional<Profile>& profile, Strategy* strategy) {
  const Program program = make_program(*strategy, strategy->micro_batches);
  const Profile* measured = profile ? &*profile : nullptr;
  if (strategy->sizes.empty()) strategy->sizes = split(config, model, measured, program);
  if (config.recompute.mode == "budget") fit_budget(config, model, measured, program, strategy);
}

config::Config planned_config(const config::Config& config, const Plan& plan) {
  const std::int64_t replicas = config.data_parallel.replicas;
  const std::int64_t own_batch = (config.data.batch + replicas - 1) / replicas;
  if (plan.global_batch != own_batch) {
    throw InvalidArgument(
        "plan", fmt::format("it is for batches of {}, and a pipeline of this config has {}; plan "
                            "again, or --set data.batch={}",
                            plan.global_batch, own_batch, plan.global_batch * replicas));
  }
  config::Config planned = config;
  planned.pipeline.ranks = plan.ranks;
  planned.pipeline.micro_batches = plan.micro_batches;
  planned.pipeline.schedule = plan.schedule;
  planned.pipeline.chunks = plan.chunks;
  planned.pipeline.partition = "manual";
  planned.pipeline.sizes = {plan.sizes.begin(), plan.sizes.end()};
  planned.recompute = {};
  const auto problems = config::conflicts(planned, catalog::known());
  if (problems.empty()) return planned;
  throw InvalidArgument(
      "plan", fmt::format("it does not go with the config: {}", fmt::join(problems, "; ")));
}

void use_operations(const Plan& plan, Strategy* strategy) {
  if (plan.operations.empty()) return;
  const Strategy planned = strategy_of(plan);
  strategy->recompute = planned.recompute;
  strategy->operations = planned.operations;
  strategy->offload = planned.offload;
  strategy->offload_stages = planned.offload_stages;
}

}  // namespace pipewright::app
