#include "pipewright/app/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "pipewright/app/setup.h"
#include "pipewright/torch/out_of_memory.h"
#include "pipewright/train/exchange.h"
#include "pipewright/train/pipeline.h"

namespace pipewright::app {
namespace {

/// The first process measures for so long while the others wait.
constexpr double kMeasuringSeconds = 1800;

/// Intra-op threads of this thread while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(torch::get_num_threads()) { torch::set_num_threads(count); }
  ~Threads() { torch::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

Batch first_rows(const DataSet& data, std::int64_t rows) {
  std::vector<std::int64_t> numbers(
      static_cast<std::size_t>(std::min(rows, data.training->size())));
  std::iota(numbers.begin(), numbers.end(), 0);
  SampleBatch batch = data.training->batch(numbers, 0);
  return {std::move(batch.inputs), std::move(batch.targets)};
}

/// The model whole, where the first rank computes.
Sequence whole_model(const Sequence& model, const Strategy& strategy) {
  Sequence whole = model;
  whole.build_all();
  if (strategy.devices.empty()) return whole;
  for (const Layer& layer : whole.layers()) {
    if (layer.module) layer.module->to(torch::Device(strategy.devices.front()));
  }
  return whole;
}

MeasureOptions measure_options(const config::Config& config, const Strategy& strategy) {
  MeasureOptions options;
  options.precision = strategy.precision;
  options.optimizer = make_optimizer(config);
  options.model = config.model.file.empty() ? config.model.name : config.model.file;
  return options;
}

/// Rows of the largest micro-batch.
std::int64_t micro_batch_rows(const config::Config& config) {
  const std::int64_t parts = config.pipeline.micro_batches * config.data_parallel.replicas;
  return (config.data.batch + parts - 1) / parts;
}

Profile measure_here(const config::Config& config, const Strategy& strategy, const DataSet& data,
                     const Sequence& model, bool one_process) {
  const Threads threads(threads_per_rank(strategy, one_process));
  const Batch batch = first_rows(data, micro_batch_rows(config));
  return measure_profile(whole_model(model, strategy), make_loss(config), batch.inputs,
                         batch.targets, measure_options(config, strategy));
}

}  // namespace

bool measures(const config::Config& config) {
  if (config.auto_micro_batch.num != 1) return false;  // it measures by itself
  return config.pipeline.partition == "time" || config.pipeline.partition == "memory" ||
         config.recompute.mode == "budget";
}

std::optional<Profile> measure_layers(const config::Config& config, const Strategy& strategy,
                                      const Grid& grid, const DataSet& data, const Sequence& model,
                                      const Note& note) {
  Exchange exchange(grid.world, "measure",
                    std::chrono::duration<double>(strategy.deadline_seconds));
  const auto measured = exchange.together(
      [&]() -> nlohmann::json {
        if (!exchange.is_first()) return nullptr;
        try {
          return to_json(measure_here(config, strategy, data, model, grid.one_process()));
        } catch (const std::exception& error) {
          if (!is_out_of_memory(error)) throw;
          return nullptr;
        }
      },
      kMeasuringSeconds);
  if (!measured.front().is_null())
    return parse_profile(measured.front().get<std::string>(), "the measured profile");
  if (note)
    note(
        "the model is too large to be measured on one device: split by its own estimate of its "
        "layers' work");
  return std::nullopt;
}

PlannedModel plan_config(const config::Config& config, const PlanRequest& request) {
  const DataSet data = open_data(config);
  config::Config shape = config;
  shape.pipeline.ranks = request.ranks;
  const Strategy strategy = make_strategy(shape, 1);
  const Threads threads(threads_per_rank(strategy, true));
  const Batch batch = first_rows(data, request.global_batch);
  const Sequence model = whole_model(make_model(shape, data).layers, strategy);
  return plan_model(model, make_loss(config), batch, request, measure_options(config, strategy));
}

}  // namespace pipewright::app
