#include "pipewright/exec/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "pipewright/base/error.h"
#include "pipewright/exec/finite.h"
#include "pipewright/nn/random.h"

namespace pipewright {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Segment::Segment(const Sequence& model, std::size_t first, std::size_t last,
                 std::vector<TiedUse*> tied)
    : model_(&model), first_(first), last_(last), tied_(std::move(tied)) {
  std::vector<std::string> inside;
  for (std::size_t i = first; i < last; ++i) {
    const Layer& layer = model.layers()[i];
    for (const auto& name : layer.options.pop) {
      if (!contains(inside, name)) pops_.push_back(name);
      std::erase(inside, name);
    }
    inside.insert(inside.end(), layer.options.stash.begin(), layer.options.stash.end());
    batch_norms_.push_back(layer.module ? std::make_unique<DeferredBatchNorm>(*layer.module)
                                        : nullptr);
  }
  stashes_ = inside;
  for (const TiedUse* use : tied_) tied_parameters_.push_back(use->parameter);
}

Tensors Segment::run_layer(const ForwardContext& context, std::size_t index,
                           const Tensors& x) const {
  const Layer& layer = model_->layers()[index];
  const RandomScope random({context.run_seed, context.step, context.global_micro_batch,
                            static_cast<std::int64_t>(index)},
                           context.device);
  DeferredBatchNorm* norms = batch_norms_[index - first_].get();
  if (!context.training || norms == nullptr || !norms->any()) return layer.forward(x);
  const DeferredBatchNorm::MicroBatch collect(*norms, context.global_micro_batch,
                                              context.recomputing);
  return layer.forward(x);
}

SegmentOutputs Segment::forward(const ForwardContext& context, const SegmentRun& run) const {
  const torch::AutoGradMode mode(context.keep_graph);
  std::map<std::string, torch::Tensor> skips;
  for (std::size_t i = 0; i < pops_.size(); ++i) skips[pops_[i]] = run.pops[i];
  Tensors x = run.inputs;
  bool kept = true;  // somebody else holds x: it must not be written into
  for (std::size_t i = first_; i < last_; ++i) {
    const Layer& layer = model_->layers()[i];
    if (layer.options.in_place && kept) {
      for (auto& tensor : x) tensor = tensor.clone();
    }
    for (const auto& name : layer.options.pop) x.push_back(skips.extract(name).mapped());
    x = run_layer(context, i, x);
    if (context.check_finite) check_finite(*model_, i, x);
    if (context.watch_gradients && context.keep_graph) watch_gradients(*model_, i, x);
    const auto& names = layer.options.stash;
    if (x.size() <= names.size()) {
      throw InvalidArgument(
          "model", fmt::format("layer '{}' returned {} tensors, but stashes {}; its forward must "
                               "return its output and then what it stashes",
                               layer.name, x.size(), names.size()));
    }
    for (std::size_t k = 0; k < names.size(); ++k)
      skips[names[k]] = x[x.size() - names.size() + k].alias();
    x.resize(x.size() - names.size());
    // What is put aside and what goes on may be one tensor: each path gets a node of its own, as it
    // would where the stage ends here.
    if (!names.empty()) {
      for (auto& tensor : x) tensor = tensor.alias();
    }
    kept = !names.empty();
  }
  SegmentOutputs made{std::move(x), {}};
  for (const auto& name : stashes_) made.stashes.push_back(skips.at(name));
  return made;
}

Tensors Segment::backward(SegmentRun* run, Tensors output_gradients, bool split) const {
  const GraphEnds ends = std::exchange(run->ends, {});
  Tensors inputs = std::exchange(run->inputs, {});
  inputs.insert(inputs.end(), run->pops.begin(), run->pops.end());
  run->pops.clear();
  if (split) {
    InputHalf half = backward_input(ends, std::move(output_gradients), inputs, tied_parameters_);
    run->weight_half = std::move(half.weight_half);
    return std::move(half.input_gradients);
  }
  BackwardResult result =
      pipewright::backward(ends, std::move(output_gradients), inputs, tied_parameters_);
  add_tied(result.separate_gradients);
  return std::move(result.input_gradients);
}

void Segment::backward_weight(SegmentRun* run) const {
  add_tied(run->weight_half.run());
  run->weight_half = WeightHalf();
}

void Segment::add_tied(const Tensors& gradients) const {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tied_.size(); ++i) {
    if (i >= gradients.size() || !gradients[i].defined()) continue;
    torch::Tensor& sum = tied_[i]->gradient;
    // The first is copied: it may share memory with a gradient that somebody else reads. It lies as
    // the parameter does, and so does one that a checkpoint brings back: norms add up in that
    // order.
    sum = sum.defined() ? sum.add_(gradients[i])
                        : torch::empty_like(tied_[i]->parameter).copy_(gradients[i]);
  }
}

bool Segment::has_norms() const {
  return std::any_of(batch_norms_.begin(), batch_norms_.end(),
                     [](const auto& norms) { return norms && norms->any(); });
}

void Segment::collected_norms(std::vector<double>* numbers) const {
  for (const auto& norms : batch_norms_) {
    if (norms && norms->any()) norms->write_collected(numbers);
  }
}

std::span<const double> Segment::add_norms(std::span<const double> numbers) {
  for (auto& norms : batch_norms_) {
    if (norms && norms->any()) numbers = norms->add_collected(numbers);
  }
  return numbers;
}

void Segment::finish_mini_batch() {
  for (auto& norms : batch_norms_) {
    if (norms) norms->finish_mini_batch();
  }
}

void Segment::abandon() {
  for (auto& norms : batch_norms_) {
    if (norms) norms->abandon();
  }
}

}  // namespace pipewright
