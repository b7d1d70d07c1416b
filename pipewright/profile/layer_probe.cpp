#include "pipewright/profile/layer_probe.h"

#include <algorithm>
#include <unordered_set>

#include "pipewright/memory/meter.h"
#include "pipewright/nn/backward.h"
#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/nn/random.h"
#include "pipewright/profile/moment.h"

namespace pipewright {
namespace {

bool passes_on(const Tensors& input, const torch::Tensor& output) {
  return std::any_of(input.begin(), input.end(), [&](const torch::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl() == output.storage().unsafeGetStorageImpl();
  });
}

/// Bytes of the outputs that are inputs, handed on: not made, but held with the rest.
std::int64_t bytes_passed_on(const Tensors& input, const Tensors& outputs) {
  Tensors passed;
  for (const auto& output : outputs) {
    if (passes_on(input, output)) passed.push_back(output);
  }
  return bytes_of(passed);
}

Tensors gradients_of(const Tensors& outputs) {
  Tensors gradients;
  for (const auto& output : outputs)
    gradients.push_back(output.requires_grad() ? torch::ones_like(output) : torch::Tensor());
  return gradients;
}

}  // namespace

std::int64_t bytes_of(const Tensors& tensors) {
  std::unordered_set<const void*> seen;
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

LayerProbe::LayerProbe(const Layer& layer, std::size_t index, const DeviceStream& stream,
                       Precision precision, int slot)
    : layer_(layer), index_(index), stream_(stream), precision_(precision), slot_(slot) {
  if (layer.module) norms_ = std::make_unique<DeferredBatchNorm>(*layer.module);
  if (stream_.on_gpu()) MemoryMeter::charge_stream(stream_.stream(), slot);
}

Tensors LayerProbe::make_leaves(const Tensors& input) const {
  Tensors leaves;
  for (const auto& tensor : input)
    leaves.push_back(tensor.detach().requires_grad_(tensor.is_floating_point() && index_ > 0));
  return leaves;
}

Tensors LayerProbe::forward(const Tensors& leaves) {
  const RandomScope random({0, 0, 0, static_cast<std::int64_t>(index_)}, stream_.device());
  const AutocastScope autocast(stream_.device(), precision_);
  const OwnGraphs own(&copies_);
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
  // The engine divides by the mini-batch's weight.
  if (loss_ != nullptr) x = {loss_->value(x, targets_).sum / 1.0};
  return x;
}

Tensors LayerProbe::measure_bytes(const Tensors& input, LayerCost* cost) {
  const UseStream use(stream_);
  const MemoryScope scope(slot_);
  const Tensors leaves = make_leaves(input);
  made_.clear();
  wait();
  forward(leaves);  // makes the copies of its weights, if nobody has yet
  made_.clear();
  wait();
  const std::int64_t before = live();
  MemoryMeter::reset_peak(slot_);
  Tensors outputs = forward(leaves);
  wait();
  cost->copy_bytes = copies_.bytes();
  cost->saved_bytes = live() - before;
  cost->forward_temp_bytes = MemoryMeter::stats(slot_).peak_bytes - live();
  Tensors result = made_;
  cost->saved_bytes += bytes_passed_on(input, result);
  cost->output_bytes = std::min(bytes_of(result), cost->saved_bytes);
  measure_backward_bytes(leaves, std::move(outputs), cost);
  measure_half_bytes(leaves, before, cost);
  return result;
}

void LayerProbe::measure_backward_bytes(const Tensors& leaves, Tensors outputs, LayerCost* cost) {
  Tensors gradients = gradients_of(outputs);
  made_.clear();
  const GraphEnds ends(outputs);
  outputs.clear();
  wait();
  const std::int64_t before = live();
  MemoryMeter::reset_peak(slot_);
  backward(ends, std::move(gradients), leaves);  // moved: freed when they are used
  wait();
  cost->backward_temp_bytes = MemoryMeter::stats(slot_).peak_bytes - before;
}

void LayerProbe::measure_half_bytes(const Tensors& leaves, std::int64_t before, LayerCost* cost) {
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

Needs LayerProbe::needs(const Tensors& input, const Tensors& outputs) {
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

/// What a forward leaves behind that its graph holds, and with `keep` that output.
std::int64_t LayerProbe::held_after(const std::function<Tensors()>& make_input,
                                    std::optional<std::size_t> keep) {
  wait();
  const std::int64_t before = live();
  const GraphEnds ends(forward(make_input()));
  const torch::Tensor kept = keep ? made_[*keep] : torch::Tensor();
  made_.clear();
  wait();
  return live() - before;
}

std::int64_t LayerProbe::live() const { return MemoryMeter::stats(slot_).live_bytes; }

void LayerProbe::wait() const { stream_.synchronize(kGpuDeadline); }

}  // namespace pipewright
