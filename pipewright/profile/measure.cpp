#include "pipewright/profile/measure.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <unordered_set>

#include "pipewright/memory/meter.h"
#include "pipewright/profile/alike.h"
#include "pipewright/profile/layer_probe.h"
#include "pipewright/profile/machine.h"
#include "pipewright/profile/model_pass.h"

namespace pipewright {
namespace {

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
  stream.synchronize(kGpuDeadline);
  const auto start = std::chrono::steady_clock::now();
  optimizer->step();
  stream.synchronize(kGpuDeadline);
  cost->step_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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

/// Of these tensors, what the backward of the layer that made them does not read: what that of the
/// layer which takes them reads, or what it does not either. Those that were popped come after
/// them, and are not the maker's.
std::int64_t unread_bytes(const Tensors& tensors, const Needs& maker, const Needs& taker,
                          bool taker_reads) {
  Tensors unread;
  for (std::size_t k = 0; k < tensors.size() && k < maker.outputs.size(); ++k) {
    if (maker.outputs[k] == 0 && (taker.inputs[k] != 0) == taker_reads)
      unread.push_back(tensors[k]);
  }
  return bytes_of(unread);
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

/// One profile being made.
class Measurement {
 public:
  Measurement(const Sequence& model, const Loss& loss, const Tensors& inputs,
              const Tensors& targets, const MeasureOptions& options)
      : model_(model), inputs_(inputs), targets_(targets), options_(options), scratch_(model) {
    torch::Device device = first_device();
    profile_.host_bandwidth = host_bandwidth(stream_of(device));
    profile_.loss_bytes = scalar_bytes(stream_of(device), slot_.number());
    for (std::size_t i = 0; i < model.size(); ++i) {
      device = device_of(model.layers()[i], device);
      probes_.push_back(std::make_unique<LayerProbe>(model.layers()[i], i, stream_of(device),
                                                     options.precision, slot_.number()));
    }
    if (!targets.empty()) probes_.back()->set_loss(&loss, on_device(targets, device));
  }

  Profile make() {
    profile_.model = options_.model;
    profile_.machine = machine_name();
    profile_.micro_batch_size = static_cast<int>(targets_.empty() ? 1 : targets_[0].size(0));
    profile_.input_bytes = bytes_of(inputs_);
    for (const Layer& layer : model_.layers()) {
      profile_.layers.emplace_back();
      profile_.layers.back().name = layer.name;
    }
    // Before any bytes are counted: libraries allocate their workspaces at the first call.
    ModelPass(&probes_, on_device(inputs_, first_device())).measure(options_, &profile_.layers);
    Tensors x = inputs_;
    for (std::size_t i = 0; i < model_.size(); ++i) x = measure_layer(i, std::move(x));
    profile_.layers.back().idle_bytes = 0;
    for (const std::size_t tied : tied_layers(model_)) {  // graphs of their own: inputs stay
      profile_.layers[tied].idle_bytes = 0;
      if (tied > 0) profile_.layers[tied - 1].idle_bytes = 0;
    }
    share_times_of_alike(model_, &profile_.layers);
    return std::move(profile_);
  }

 private:
  /// Layers without parameters before the first one that has some are where that one is.
  torch::Device first_device() const {
    for (const Layer& layer : model_.layers()) {
      if (layer.module && !layer.module->parameters().empty()) return device_of(layer, torch::kCPU);
    }
    return torch::kCPU;
  }

  /// One a device for all layers: cuBLAS keeps a workspace for every stream it ever saw.
  const DeviceStream& stream_of(torch::Device device) {
    return streams_.try_emplace(device.str(), device).first->second;
  }

  /// Its bytes and its optimizer's; returns what it made, for the next one.
  Tensors measure_layer(std::size_t i, Tensors x) {
    LayerProbe& probe = *probes_[i];
    const Layer& layer = probe.layer();
    LayerCost& cost = profile_.layers[i];
    for (const auto& name : layer.options.pop) {
      x.push_back(skips_.extract(name).mapped());
      cost.skip_bytes += bytes_of({x.back()});
    }
    x = on_device(x, probe.stream().device());
    const Parameters own = own_parameters(layer, &seen_, &cost);
    add_parameters(own, &cost);
    measure_optimizer(options_.optimizer, own, probe.stream(), slot_.number(), &cost);
    Tensors made = probe.measure_bytes(x, &cost);
    const Needs now = probe.needs(x, made);
    if (i > 0) {
      LayerCost& maker = profile_.layers[i - 1];
      maker.idle_bytes = unread_bytes(x, before_, now, /*taker_reads=*/false);
      maker.gone_bytes = unread_bytes(x, before_, now, /*taker_reads=*/true);
    }
    before_ = now;
    const auto& names = layer.options.stash;
    for (std::size_t k = 0; k < names.size(); ++k) {
      skips_[names[k]] = made[made.size() - names.size() + k];
      cost.skip_bytes += bytes_of({skips_[names[k]]});
    }
    made.resize(made.size() - names.size());
    return made;
  }

  const Sequence& model_;
  const Tensors& inputs_;
  const Tensors& targets_;
  const MeasureOptions& options_;
  const MemorySlot slot_;
  const ScratchGradients scratch_;
  std::map<std::string, DeviceStream> streams_;
  std::vector<std::unique_ptr<LayerProbe>> probes_;
  std::map<std::string, torch::Tensor> skips_;
  std::unordered_set<const void*> seen_;  // parameters of layers before
  Needs before_;                          // of the layer before
  Profile profile_;
};

}  // namespace

Profile measure_profile(const Sequence& model, const Loss& loss, const Tensors& inputs,
                        const Tensors& targets, const MeasureOptions& options) {
  model.check();
  MemoryMeter::install();
  Sequence built = model;
  built.build_all();
  return Measurement(built, loss, inputs, targets, options).make();
}

}  // namespace pipewright
