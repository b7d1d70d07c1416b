#include "pipewright/app/choose_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/micro/auto_micro_batch.h"

namespace pipewright::app {
namespace {

constexpr int kLanesOfGpu = 2;

bool on_cpu(const config::Config& config) {
  return config.pipeline.devices.empty() || config.pipeline.devices.front() == "cpu";
}

int lanes_for(const config::Config& config, int num) {
  int lanes = static_cast<int>(config.auto_micro_batch.lanes);
  if (lanes == 0)
    lanes = on_cpu(config) ? static_cast<int>(std::thread::hardware_concurrency()) : kLanesOfGpu;
  return std::clamp(lanes, 1, num);
}

int measured_num(const config::Config& config, const DataSet& data, Sequence model,
                 const std::function<void(const std::string&)>& note) {
  model.build_all();
  if (!on_cpu(config)) {
    for (const Layer& layer : model.layers()) {
      if (layer.module) layer.module->to(torch::Device(config.pipeline.devices.front()));
    }
  }
  std::vector<std::int64_t> rows(
      static_cast<std::size_t>(std::min(config.data.batch, data.training->size())));
  std::iota(rows.begin(), rows.end(), 0);
  SampleBatch batch = data.training->batch(rows, 0);
  AutoMicroBatch measure(model, make_loss(config),
                         {.lanes = static_cast<int>(config.auto_micro_batch.lanes),
                          .seed = static_cast<std::uint64_t>(config.seed)});
  measure.backward({.inputs = std::move(batch.inputs), .targets = std::move(batch.targets)});
  for (const auto& [name, parameter] : model.named_parameters())
    parameter.mutable_grad() = torch::Tensor();
  if (note) note(fmt::format("{}taken: {} micro-batches", measure.measured(), measure.num()));
  return measure.num();
}

}  // namespace

void choose_lanes(const config::Config& config, const DataSet& data, const Sequence& model,
                  const std::function<void(const std::string&)>& note, Strategy* strategy) {
  const config::AutoMicroBatch& wanted = config.auto_micro_batch;
  if (wanted.num == 1) return;
  if (wanted.num == 0 && wanted.batch == "micro") {
    throw InvalidArgument(
        "config",
        "auto_micro_batch.num = \"auto\" with batch = \"micro\": how many batches "
        "a step takes changes the training; write a number");
  }
  strategy->micro_batches =
      wanted.num > 0 ? static_cast<int>(wanted.num) : measured_num(config, data, model, note);
  strategy->lanes = lanes_for(config, strategy->micro_batches);
}

std::int64_t rows_a_step(const config::Config& config) {
  const bool each = config.auto_micro_batch.batch == "micro" && config.auto_micro_batch.num > 1;
  return config.data.batch * (each ? config.auto_micro_batch.num : 1);
}

}  // namespace pipewright::app
