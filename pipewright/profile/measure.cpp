#include "pipewright/profile/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <unordered_set>

#include "pipewright/memory/meter.h"
#include "pipewright/nn/backward.h"
#include "pipewright/nn/batch_norm.h"
#include "pipewright/nn/random.h"
#include "pipewright/torch/compat.h"
#include "pipewright/torch/stream.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::int64_t bytes_of(const Tensors& tensors) {
  std::unordered_set<const void*> seen;
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) {
      name = line.substr(colon + 2);
      break;
    }
  }
  return fmt::format("{}, {} cores, {} threads, LibTorch {}", name,
                     std::thread::hardware_concurrency(), torch::get_num_threads(), TORCH_VERSION);
}

/// Gives every parameter a gradient of zeros to add to, as it has in all micro-batches but the
/// first, and puts the old ones back.
class ScratchGradients {
 public:
  explicit ScratchGradients(const Sequence& model) {
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (!parameter.requires_grad()) continue;
      old_.emplace_back(parameter, parameter.grad());
      parameter.mutable_grad() = torch::zeros_like(parameter);
    }
  }
  ~ScratchGradients() {
    for (auto& [parameter, gradient] : old_) parameter.mutable_grad() = gradient;
  }
  ScratchGradients(const ScratchGradients&) = delete;
  ScratchGradients& operator=(const ScratchGradients&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> old_;
};

/// The times between laps: of the GPU's stream, or else of this thread.
class Stopwatch {
 public:
  explicit Stopwatch(const DeviceStream& stream) : stream_(&stream) { lap(); }

  void lap() {
    if (!stream_->on_gpu()) {
      times_.push_back(Clock::now());
      return;
    }
    events_.push_back(
        std::make_unique<c10::Event>(stream_->device().type(), c10::EventFlag::BACKEND_DEFAULT));
    events_.back()->record(stream_->stream());
  }

  /// Of one lap. A GPU's must have run.
  double seconds(std::size_t lap) const {
    if (stream_->on_gpu()) return compat::seconds_between(*events_[lap], *events_[lap + 1]);
    return std::chrono::duration<double>(times_[lap + 1] - times_[lap]).count();
  }

 private:
  const DeviceStream* stream_;
  std::vector<Clock::time_point> times_;
  std::vector<std::unique_ptr<c10::Event>> events_;
};

/// Which of a layer's tensors its own backward reads.
struct Needs {
  std::vector<char> inputs;
  std::vector<char> outputs;
};

/// One layer (the last one with its loss) on its input, again and again.
class LayerProbe {
 public:
  LayerProbe(const Layer& layer, std::size_t index, const DeviceStream& stream, Precision precision,
             int slot)
      : layer_(layer), index_(index), stream_(stream), precision_(precision), slot_(slot) {
    if (layer.module) norms_ = std::make_unique<DeferredBatchNorm>(*layer.module);
    if (stream_.on_gpu()) MemoryMeter::charge_stream(stream_.stream(), slot);
  }

  void set_loss(const Loss* loss, const Tensors* targets, double weight) {
    loss_ = loss;
    targets_ = targets;
    weight_ = weight;
  }

  /// What the layer makes of `input`, for the next one; `cost` gets everything but times.
  Tensors measure_bytes(const Tensors& input, LayerCost* cost) {
    const UseStream use(stream_);
    const MemoryScope scope(slot_);
    const Tensors leaves = make_leaves(input);
    made_.clear();
    wait();
    const std::int64_t before = live();
    MemoryMeter::reset_peak(slot_);
    Tensors outputs = forward(leaves);
    wait();
    cost->saved_bytes = live() - before;
    cost->forward_temp_bytes = MemoryMeter::stats(slot_).peak_bytes - live();
    Tensors result = made_;
    cost->saved_bytes += bytes_passed_on(input, result);
    cost->output_bytes = std::min(bytes_of(result), cost->saved_bytes);
    measure_backward_bytes(leaves, std::move(outputs), cost);
    measure_half_bytes(leaves, before, cost);
    return result;
  }

  /// `outputs`: what it made of `input`, without those it stashes.
  Needs needs(const Tensors& input, const Tensors& outputs) {
    const UseStream use(stream_);
    const MemoryScope scope(slot_);
    Needs result;
    const auto leaves = [&] { return make_leaves(input); };
    const std::int64_t graph = held_after(leaves, {});
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      // To hold an output costs nothing more where the graph does.
      const std::int64_t half = bytes_of({outputs[k]}) / 2;
      const bool needed = !passes_on(input, outputs[k]) && held_after(leaves, k) <= graph + half;
      result.outputs.push_back(needed ? 1 : 0);
    }
    for (std::size_t k = 0; k < input.size(); ++k) {
      const auto one_fresh = [&] {
        Tensors inputs = leaves();
        inputs[k] = input[k] + torch::zeros({1}, input[k].options()).requires_grad_();
        return inputs;
      };
      const bool can_tell = index_ > 0 && input[k].is_floating_point();
      const std::int64_t half = bytes_of({input[k]}) / 2;  // beside it there may be crumbs
      result.inputs.push_back(!can_tell || held_after(one_fresh, {}) > graph + half ? 1 : 0);
    }
    return result;
  }

  /// Bytes of the outputs that are inputs, handed on: not made, but held with the rest.
  static std::int64_t bytes_passed_on(const Tensors& input, const Tensors& outputs) {
    Tensors passed;
    for (const auto& output : outputs) {
      if (passes_on(input, output)) passed.push_back(output);
    }
    return bytes_of(passed);
  }

  /// On a GPU nothing waits between the repeats, so that launches run ahead as they do in training,
  /// and the GPU's own clock is read.
  void measure_times(const Tensors& input, const MeasureOptions& options, LayerCost* cost) {
    const UseStream use(stream_);
    std::vector<Stopwatch> watches;
    for (int i = -options.warm_up; i < options.repeats; ++i) {
      if (i <= 0) wait();
      const Tensors leaves = make_leaves(input);
      Stopwatch watch(stream_);
      Tensors outputs = forward(leaves);
      watch.lap();
      const Tensors gradients = gradients_of(outputs);
      watch.lap();
      backward(std::exchange(outputs, {}), gradients, leaves);
      watch.lap();
      outputs = forward(leaves);
      watch.lap();
      InputHalf half = backward_input(std::exchange(outputs, {}), gradients, leaves);
      watch.lap();
      half.weight_half.run();
      watch.lap();
      if (i >= 0) watches.push_back(std::move(watch));
    }
    wait();
    const auto lap = [&](std::size_t number) {
      std::vector<double> seconds;
      for (const Stopwatch& watch : watches) seconds.push_back(watch.seconds(number));
      return median(std::move(seconds));
    };
    cost->forward_seconds = lap(0);
    cost->backward_seconds = lap(2);
    cost->backward_input_seconds = lap(4);
    cost->backward_weight_seconds = lap(5);
  }

 private:
  static bool passes_on(const Tensors& input, const torch::Tensor& output) {
    return std::any_of(input.begin(), input.end(), [&](const torch::Tensor& tensor) {
      return tensor.storage().unsafeGetStorageImpl() == output.storage().unsafeGetStorageImpl();
    });
  }

  /// What a forward leaves behind that its graph holds, and with `keep` that output.
  std::int64_t held_after(const std::function<Tensors()>& make_input,
                          std::optional<std::size_t> keep) {
    wait();
    const std::int64_t before = live();
    const GraphEnds ends(forward(make_input()));
    const torch::Tensor kept = keep ? made_[*keep] : torch::Tensor();
    made_.clear();
    wait();
    return live() - before;
  }

  /// Leaves that want a gradient where they can have one, but for the model's own inputs.
  Tensors make_leaves(const Tensors& input) const {
    Tensors leaves;
    for (const auto& tensor : input)
      leaves.push_back(tensor.detach().requires_grad_(tensor.is_floating_point() && index_ > 0));
    return leaves;
  }

  Tensors forward(const Tensors& leaves) {
    const RandomScope random({0, 0, 0, static_cast<std::int64_t>(index_)}, stream_.device());
    const AutocastScope autocast(stream_.device(), precision_);
    Tensors x = leaves;
    if (layer_.options.in_place) {
      for (auto& tensor : x) tensor = tensor.clone();
    }
    std::unique_ptr<DeferredBatchNorm::MicroBatch> untouched;
    if (norms_ && norms_->any())
      untouched = std::make_unique<DeferredBatchNorm::MicroBatch>(*norms_, 0, true);
    x = layer_.forward(x);
    made_.clear();
    for (const auto& tensor : x) made_.push_back(tensor.detach());
    if (loss_ != nullptr) x = {loss_->value(x, *targets_).sum / weight_};
    return x;
  }

  static Tensors gradients_of(const Tensors& outputs) {
    Tensors gradients;
    for (const auto& output : outputs)
      gradients.push_back(output.requires_grad() ? torch::ones_like(output) : torch::Tensor());
    return gradients;
  }

  void measure_backward_bytes(const Tensors& leaves, Tensors outputs, LayerCost* cost) {
    const Tensors gradients = gradients_of(outputs);
    made_.clear();
    const GraphEnds ends(outputs);
    outputs.clear();
    wait();
    const std::int64_t before = live();
    MemoryMeter::reset_peak(slot_);
    backward(ends, gradients, leaves);
    wait();
    cost->backward_temp_bytes = MemoryMeter::stats(slot_).peak_bytes - before;
  }

  void measure_half_bytes(const Tensors& leaves, std::int64_t before, LayerCost* cost) {
    Tensors outputs = forward(leaves);
    const Tensors gradients = gradients_of(outputs);
    made_.clear();
    InputHalf half = backward_input(std::exchange(outputs, {}), gradients, leaves);
    half.input_gradients.clear();
    wait();
    const std::int64_t held = live() - before - bytes_of(gradients);
    cost->weight_half_bytes = std::clamp<std::int64_t>(held, 0, cost->saved_bytes);
    half.weight_half.run();
  }

  std::int64_t live() const { return MemoryMeter::stats(slot_).live_bytes; }
  void wait() const { stream_.synchronize(std::chrono::minutes(5)); }

  const Layer& layer_;
  std::size_t index_;
  const DeviceStream& stream_;
  Precision precision_;
  int slot_;
  std::unique_ptr<DeferredBatchNorm> norms_;
  const Loss* loss_ = nullptr;
  const Tensors* targets_ = nullptr;
  double weight_ = 1;
  Tensors made_;  // by the last forward, before the loss
};

torch::Device device_of(const Layer& layer, torch::Device before) {
  if (!layer.module || layer.module->parameters().empty()) return before;
  return layer.module->parameters()[0].device();
}

Tensors on_device(const Tensors& tensors, torch::Device device) {
  Tensors result;
  for (const auto& tensor : tensors) result.push_back(tensor.to(device));
  return result;
}

/// The layer's parameters that no layer before it has. Of the others, which are tied, `cost` gets
/// the gradients: each use has one of its own.
Parameters own_parameters(const Layer& layer, std::unordered_set<const void*>* seen,
                          LayerCost* cost) {
  Parameters own;
  if (!layer.module) return own;
  for (const auto& item : layer.module->named_parameters()) {
    if (seen->insert(item.value().unsafeGetTensorImpl()).second) {
      own.named.emplace_back(fmt::format("{}.{}", layer.name, item.key()), item.value());
    } else if (item.value().requires_grad()) {
      cost->gradient_bytes += static_cast<std::int64_t>(item.value().nbytes());
    }
  }
  return own;
}

void add_parameters(const Parameters& own, LayerCost* cost) {
  for (const auto& [name, parameter] : own.named) {
    const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
    cost->parameter_bytes += bytes;
    if (parameter.requires_grad()) cost->gradient_bytes += bytes;
  }
}

/// Two steps of an optimizer over copies: the first makes its state, the second is timed.
void measure_optimizer(const OptimizerFactory& factory, const Parameters& own,
                       const DeviceStream& stream, int slot, LayerCost* cost) {
  const UseStream use(stream);
  const MemoryScope scope(slot);
  if (stream.on_gpu()) MemoryMeter::charge_stream(stream.stream(), slot);
  Parameters copies;
  for (const auto& [name, parameter] : own.named) {
    if (!parameter.requires_grad()) continue;
    auto copy = parameter.detach().clone().requires_grad_();
    copy.mutable_grad() = torch::zeros_like(copy);
    copies.named.emplace_back(name, copy);
  }
  if (copies.named.empty() || !factory) return;
  const auto optimizer = factory(copies);
  const std::int64_t before = MemoryMeter::stats(slot).live_bytes;
  optimizer->step();
  cost->optimizer_bytes = MemoryMeter::stats(slot).live_bytes - before;
  stream.synchronize(std::chrono::minutes(5));
  const auto start = Clock::now();
  optimizer->step();
  stream.synchronize(std::chrono::minutes(5));
  cost->step_seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

/// Bytes a second from a GPU to pinned memory and back, the slower way of the two.
double host_bandwidth(const DeviceStream& stream) {
  if (!stream.on_gpu()) return 0;
  const torch::Device device = stream.device();
  constexpr std::int64_t kBytes = std::int64_t{1} << 26;
  const UseStream use(stream);
  auto there = torch::zeros({kBytes}, torch::dtype(torch::kByte).device(device));
  auto here = torch::empty({kBytes}, torch::dtype(torch::kByte).pinned_memory(true));
  std::vector<double> seconds;
  for (int i = 0; i < 4; ++i) {
    for (const bool out : {true, false}) {
      stream.synchronize(std::chrono::minutes(5));
      const auto start = Clock::now();
      out ? here.copy_(there, true) : there.copy_(here, true);
      stream.synchronize(std::chrono::minutes(5));
      if (i > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  return static_cast<double>(kBytes) / median(seconds);
}

/// What a tensor of one number takes.
std::int64_t scalar_bytes(const DeviceStream& stream, int slot) {
  const UseStream use(stream);
  const MemoryScope scope(slot);
  if (stream.on_gpu()) MemoryMeter::charge_stream(stream.stream(), slot);
  const std::int64_t before = MemoryMeter::stats(slot).live_bytes;
  const auto scalar = torch::zeros({}, torch::device(stream.device()));
  return MemoryMeter::stats(slot).live_bytes - before;
}

/// What neither the backward of the layer that made these tensors reads nor that of the layer which
/// takes them. Those that were popped come after them, and are not the maker's.
std::int64_t idle_bytes(const Tensors& tensors, const Needs& maker, const Needs& taker) {
  Tensors idle;
  for (std::size_t k = 0; k < tensors.size() && k < maker.outputs.size(); ++k) {
    if (maker.outputs[k] == 0 && taker.inputs[k] == 0) idle.push_back(tensors[k]);
  }
  return bytes_of(idle);
}

/// The layers that use a parameter which another one uses too.
std::set<std::size_t> tied_layers(const Sequence& model) {
  std::map<const void*, std::set<std::size_t>> users;
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (!model.layers()[i].module) continue;
    for (const auto& parameter : model.layers()[i].module->parameters())
      users[parameter.unsafeGetTensorImpl()].insert(i);
  }
  std::set<std::size_t> tied;
  for (const auto& [parameter, layers] : users) {
    if (layers.size() > 1) tied.insert(layers.begin(), layers.end());
  }
  return tied;
}

}  // namespace

Profile measure_profile(const Sequence& model, const Loss& loss, const Tensors& inputs,
                        const Tensors& targets, const MeasureOptions& options) {
  model.check();
  MemoryMeter::install();
  const MemorySlot slot;
  const ScratchGradients scratch(model);
  Profile profile;
  profile.model = options.model;
  profile.machine = machine_name();
  profile.micro_batch_size = static_cast<int>(targets.empty() ? 1 : targets[0].size(0));
  profile.input_bytes = bytes_of(inputs);
  std::map<std::string, torch::Tensor> skips;
  std::unordered_set<const void*> seen;
  torch::Device device = torch::kCPU;
  for (const Layer& layer : model.layers()) {  // layers without parameters before the first one
    device = device_of(layer, device);
    if (layer.module && !layer.module->parameters().empty()) break;
  }
  // One a device for all layers: cuBLAS keeps a workspace for every stream it ever saw.
  std::map<std::string, DeviceStream> streams;
  const auto stream_of = [&](torch::Device on) -> const DeviceStream& {
    return streams.try_emplace(on.str(), on).first->second;
  };
  profile.host_bandwidth = host_bandwidth(stream_of(device));
  profile.loss_bytes = scalar_bytes(stream_of(device), slot.number());
  Tensors x = inputs;
  Needs before;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Layer& layer = model.layers()[i];
    device = device_of(layer, device);
    const DeviceStream& stream = stream_of(device);
    LayerCost cost;
    cost.name = layer.name;
    for (const auto& name : layer.options.pop) {
      x.push_back(skips.extract(name).mapped());
      cost.skip_bytes += bytes_of({x.back()});
    }
    x = on_device(x, device);
    const Tensors there = on_device(targets, device);
    const Parameters own = own_parameters(layer, &seen, &cost);
    add_parameters(own, &cost);
    measure_optimizer(options.optimizer, own, stream, slot.number(), &cost);
    LayerProbe probe(layer, i, stream, options.precision, slot.number());
    if (i + 1 == model.size() && !targets.empty()) probe.set_loss(&loss, &there, 1);
    probe.measure_times(x, options, &cost);
    Tensors made = probe.measure_bytes(x, &cost);
    const Needs now = probe.needs(x, made);
    if (i > 0) profile.layers.back().idle_bytes = idle_bytes(x, before, now);
    before = now;
    x = std::move(made);
    const auto& names = layer.options.stash;
    for (std::size_t k = 0; k < names.size(); ++k) {
      skips[names[k]] = x[x.size() - names.size() + k];
      cost.skip_bytes += bytes_of({skips[names[k]]});
    }
    x.resize(x.size() - names.size());
    profile.layers.push_back(std::move(cost));
  }
  profile.layers.back().idle_bytes = 0;
  for (const std::size_t tied : tied_layers(model)) {  // graphs of their own: their inputs stay
    profile.layers[tied].idle_bytes = 0;
    if (tied > 0) profile.layers[tied - 1].idle_bytes = 0;
  }
  return profile;
}

}  // namespace pipewright
