#include "pipewright/app/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "pipewright/nn/random.h"

namespace pipewright::app {
namespace {

torch::Device device_of(const Sequence& model) {
  const auto parameters = model.named_parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().second.device();
}

Tensors on(const Tensors& tensors, torch::Device device) {
  Tensors moved;
  for (const auto& tensor : tensors) moved.push_back(tensor.to(device));
  return moved;
}

/// The layers one after the other; each one's outputs are shown to `look`, which may end it.
class Forward {
 public:
  Forward(const Sequence& model, std::uint64_t seed, torch::Device device)
      : model_(model), seed_(seed), device_(device) {}

  Tensors run(Tensors x, std::int64_t micro_batch) {
    std::map<std::string, torch::Tensor> skips;
    for (std::size_t i = 0; i < model_.size(); ++i) x = layer(i, std::move(x), micro_batch, &skips);
    return x;
  }

  /// One layer; what it stashes and pops is in `skips`.
  Tensors layer(std::size_t i, Tensors x, std::int64_t micro_batch,
                std::map<std::string, torch::Tensor>* skips) const {
    const Layer& layer = model_.layers()[i];
    for (const auto& name : layer.options.pop) x.push_back(skips->at(name));
    const RandomScope random({seed_, 0, micro_batch, static_cast<std::int64_t>(i)}, device_);
    // A layer that writes into its input must not write into what somebody else has.
    if (layer.options.in_place) {
      for (auto& tensor : x) tensor = tensor.clone();
    }
    x = layer.forward(x);
    const auto& stash = layer.options.stash;
    for (std::size_t k = 0; k < stash.size(); ++k)
      (*skips)[stash[k]] = x[x.size() - stash.size() + k];
    x.resize(x.size() - stash.size());
    return x;
  }

 private:
  const Sequence& model_;
  std::uint64_t seed_;
  torch::Device device_;
};

std::vector<torch::Tensor> copies(const NamedTensors& tensors) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : tensors) result.push_back(tensor.detach().clone());
  return result;
}

bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.equal(y); });
}

/// Of all outputs; infinite where shapes differ.
double distance(const Tensors& a, const Tensors& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].sizes() != b[i].sizes()) return std::numeric_limits<double>::infinity();
    if (!a[i].is_floating_point() || a[i].numel() == 0) continue;
    const double size = a[i].abs().max().item<double>();
    const double apart = (a[i] - b[i]).abs().max().item<double>();
    if (std::isnan(apart)) return apart;
    most = std::max(most, apart / std::max(size, std::numeric_limits<double>::min()));
  }
  return most;
}

/// Micro-batches' outputs as those of one batch; nothing where one of them has no rows to join.
std::optional<Tensors> joined(const std::vector<Tensors>& parts, std::int64_t rows) {
  Tensors whole;
  for (std::size_t i = 0; i < parts.front().size(); ++i) {
    Tensors pieces;
    for (const Tensors& part : parts) pieces.push_back(part[i]);
    if (pieces.front().dim() == 0) return std::nullopt;
    whole.push_back(torch::cat(pieces));
    if (whole.back().size(0) != rows) return std::nullopt;
  }
  return whole;
}

/// Runs all micro-batches through the model layer by layer.
class LayerWalk {
 public:
  LayerWalk(const Sequence& model, std::uint64_t seed, std::vector<Tensors> inputs)
      : forward_(model, seed, device_of(model)), now_(std::move(inputs)), skips_(now_.size()) {}

  /// The next layer's outputs, by micro-batch.
  const std::vector<Tensors>& run(std::size_t layer) {
    for (std::size_t m = 0; m < now_.size(); ++m)
      now_[m] = forward_.layer(layer, std::move(now_[m]), static_cast<std::int64_t>(m), &skips_[m]);
    return now_;
  }

 private:
  Forward forward_;
  std::vector<Tensors> now_;
  std::vector<std::map<std::string, torch::Tensor>> skips_;
};

}  // namespace

PlainGradients plain_gradients(const Sequence& model, const Loss& loss, const Batch& batch,
                               int parts, std::uint64_t seed) {
  const torch::Device device = device_of(model);
  const auto inputs = split(batch.inputs, batch.shared_inputs, parts);
  const auto targets = split(batch.targets, {}, parts);
  // The sum of all is divided once, at the end of one graph, as anybody would.
  torch::Tensor sum;
  double weight = 0;
  for (std::size_t m = 0; m < inputs.size(); ++m) {
    const Tensors own = on(targets[m], device);
    const LossValue value = loss.value(
        Forward(model, seed, device).run(on(inputs[m], device), static_cast<std::int64_t>(m)), own);
    weight += loss.weight ? loss.weight(own) : value.weight;
    sum = sum.defined() ? sum + value.sum : value.sum;
  }
  (sum / weight).backward();
  PlainGradients result;
  result.loss = sum.item<double>() / weight;
  for (auto& [name, parameter] : model.named_parameters()) {
    result.gradients.emplace_back(
        name, parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
    parameter.mutable_grad().reset();
  }
  return result;
}

bool sees_micro_batches(const Sequence& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = device_of(model);
  const auto before = copies(model.named_buffers());
  const auto outputs = [&](std::uint64_t seed) {
    return Forward(model, seed, device).run(on(batch.inputs, device), 0);
  };
  const Tensors first = outputs(1);
  const bool draws = !same(first, outputs(2));
  const auto after = model.named_buffers();
  bool counts = false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    counts = counts || !before[i].equal(after[i].second);
    after[i].second.detach().copy_(before[i]);
  }
  return draws || counts;
}

std::string layer_apart(const Sequence& model, const Batch& batch, int parts, std::uint64_t seed,
                        bool whole, double tolerance) {
  const torch::NoGradGuard no_grad;
  const torch::Device device = device_of(model);
  const std::int64_t rows = rows_of(batch);
  std::vector<Tensors> inputs;
  for (const Tensors& part : split(batch.inputs, batch.shared_inputs, parts))
    inputs.push_back(on(part, device));
  LayerWalk once(model, seed, inputs);
  LayerWalk again(model, seed, inputs);
  LayerWalk at_once(model, seed, {on(batch.inputs, device)});
  for (std::size_t i = 0; i < model.size(); ++i) {
    const std::string& name = model.layers()[i].name;
    const auto& first = once.run(i);
    const auto& second = again.run(i);
    for (std::size_t m = 0; m < first.size(); ++m) {
      if (!same(first[m], second[m]))
        return fmt::format(
            "layer '{}' gives other outputs when it is run again with the same inputs, by {:.1e}",
            name, distance(first[m], second[m]));
    }
    if (!whole) continue;
    const auto parts_joined = joined(first, rows);
    const double apart = parts_joined ? distance(at_once.run(i).front(), *parts_joined) : 0;
    if (!parts_joined) at_once.run(i);
    if (!(apart <= tolerance))
      return fmt::format(
          "layer '{}' makes other outputs of parts of the batch than of the whole, by {:.1e}: it "
          "mixes samples",
          name, apart);
  }
  return "";
}

}  // namespace pipewright::app
