#include "pipewright/app/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "pipewright/base/error.h"

namespace pipewright::app {
namespace {

LearningRate after_warm_up(const config::Train& train, std::int64_t num_updates) {
  const std::int64_t rest = std::max<std::int64_t>(1, num_updates - train.warmup);
  if (train.schedule == "cosine") return cosine_decay(rest, train.schedule_floor);
  if (train.schedule == "linear") return linear_decay(rest, train.schedule_floor);
  if (train.schedule == "inverse_sqrt")
    return inverse_sqrt_decay(std::max<std::int64_t>(1, train.warmup));
  if (train.schedule == "step") return step_decay(train.schedule_every, train.schedule_factor);
  return constant_rate();
}

RecomputeMode recompute_mode(const std::string& name) {
  static const std::map<std::string, RecomputeMode> modes = {
      {"none", RecomputeMode::kNone},
      {"all", RecomputeMode::kAll},
      {"except_last", RecomputeMode::kExceptLast},
      {"every", RecomputeMode::kEvery},
      {"named", RecomputeMode::kNamed},
      {"sqrt", RecomputeMode::kSqrt},
      {"budget", RecomputeMode::kBudget}};
  return modes.at(name);
}

Precision precision_of(const std::string& dtype) {
  if (dtype == "bf16") return Precision::kBf16;
  return dtype == "fp16" ? Precision::kFp16 : Precision::kFull;
}

void set_pipeline(const config::Config& config, Strategy* strategy) {
  const config::Pipeline& pipeline = config.pipeline;
  strategy->ranks = static_cast<int>(pipeline.ranks);
  strategy->micro_batches = static_cast<int>(pipeline.micro_batches);
  strategy->schedule = pipeline.schedule;
  strategy->chunks = static_cast<int>(pipeline.chunks);
  strategy->vertical_sync = pipeline.vertical_sync;
  strategy->sizes = {pipeline.sizes.begin(), pipeline.sizes.end()};
  strategy->devices = pipeline.devices;
  strategy->transport = pipeline.transport;
  strategy->threads_per_rank = static_cast<int>(pipeline.threads_per_rank);
  strategy->pin = pipeline.pin;
  strategy->deadline_seconds = pipeline.deadline_seconds;
  strategy->life_deadline_seconds = pipeline.life_deadline_seconds;
  strategy->address = pipeline.address;
  strategy->shared_memory = pipeline.shared_memory;
  strategy->replicas = static_cast<int>(config.data_parallel.replicas);
  strategy->shard_optimizer = config.data_parallel.shard_optimizer;
}

}  // namespace

Strategy make_strategy(const config::Config& config, std::int64_t num_updates) {
  Strategy strategy;
  set_pipeline(config, &strategy);
  strategy.recompute = recompute_mode(config.recompute.mode);
  strategy.recompute_every = static_cast<int>(config.recompute.every);
  strategy.checkpoints = config.recompute.checkpoints;
  strategy.memory_budget = config.recompute.budget;
  strategy.offload = config.recompute.offload;
  strategy.learning_rate = after_warm_up(config.train, num_updates);
  if (config.train.warmup > 0)
    strategy.learning_rate = warm_up(config.train.warmup, strategy.learning_rate);
  strategy.clip_norm = config.train.clip_norm;
  strategy.merge_steps = static_cast<int>(config.gradient_merge.steps);
  strategy.merge_average = config.gradient_merge.average;
  strategy.seed = static_cast<std::uint64_t>(config.seed);
  strategy.precision = precision_of(config.amp.dtype);
  strategy.loss_scaling = {.init_scale = config.amp.init_scale,
                           .growth = config.amp.growth,
                           .growth_interval = static_cast<int>(config.amp.growth_interval),
                           .backoff = config.amp.backoff,
                           .backoff_interval = static_cast<int>(config.amp.backoff_interval)};
  strategy.check_finite = config.train.check_finite;
  return strategy;
}

OptimizerFactory make_optimizer(const config::Config& config) {
  const config::Train train = config.train;
  return [train](const Parameters& p) -> std::unique_ptr<torch::optim::Optimizer> {
    using namespace torch::optim;
    const std::tuple<double, double> betas(train.betas.at(0), train.betas.at(1));
    if (train.optimizer == "sgd") {
      return std::make_unique<SGD>(
          p, SGDOptions(train.lr).momentum(train.momentum).weight_decay(train.weight_decay));
    }
    if (train.optimizer == "adam") {
      return std::make_unique<Adam>(
          p,
          AdamOptions(train.lr).betas(betas).eps(train.epsilon).weight_decay(train.weight_decay));
    }
    if (train.optimizer == "adamw") {
      return std::make_unique<AdamW>(
          p,
          AdamWOptions(train.lr).betas(betas).eps(train.epsilon).weight_decay(train.weight_decay));
    }
    if (train.optimizer == "rmsprop") {
      return std::make_unique<RMSprop>(p, RMSpropOptions(train.lr)
                                              .momentum(train.momentum)
                                              .eps(train.epsilon)
                                              .weight_decay(train.weight_decay));
    }
    if (train.optimizer == "adagrad") {
      return std::make_unique<Adagrad>(
          p, AdagradOptions(train.lr).eps(train.epsilon).weight_decay(train.weight_decay));
    }
    throw InvalidArgument("config", fmt::format("optimizer '{}' is not known", train.optimizer));
  };
}

}  // namespace pipewright::app
