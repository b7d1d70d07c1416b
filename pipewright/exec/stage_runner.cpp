#include "pipewright/exec/stage_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "pipewright/base/error.h"
#include "pipewright/memory/meter.h"

namespace pipewright {
namespace {

GraphEnds ends_of(SegmentOutputs made) {
  made.outputs.insert(made.outputs.end(), made.stashes.begin(), made.stashes.end());
  return made.outputs;
}

}  // namespace

int StageLayout::stage_of(std::size_t layer) const {
  const auto after = std::upper_bound(first_layer.begin(), first_layer.end(), layer);
  return static_cast<int>(after - first_layer.begin()) - 1;
}

SharedModel share_model(const Sequence& model, Loss loss, StageLayout layout) {
  SharedModel shared;
  shared.model = &model;
  shared.layout = std::move(layout);
  shared.loss = std::move(loss);
  std::unordered_map<const void*, int> uses;
  bool learns = false;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Layer& layer = model.layers()[i];
    for (const auto& name : layer.options.stash) {
      shared.skip_index[name] = static_cast<int>(shared.skips.size());
      shared.skips.push_back({i, i});
    }
    for (const auto& name : layer.options.pop) {
      shared.skips[static_cast<std::size_t>(shared.skip_index.at(name))].to_layer = i;
    }
    if (layer.module) {
      for (const auto& parameter : layer.module->parameters()) {
        ++uses[parameter.unsafeGetTensorImpl()];
        learns = learns || parameter.requires_grad();
      }
    }
    shared.gradient_flows.push_back(learns ? 1 : 0);
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (!model.layers()[i].module) continue;
    for (const auto& parameter : model.layers()[i].module->parameters()) {
      if (uses[parameter.unsafeGetTensorImpl()] < 2 || !parameter.requires_grad()) continue;
      shared.tied_uses.push_back(std::make_unique<TiedUse>(TiedUse{i, parameter, {}}));
    }
  }
  return shared;
}

StageRunner::StageRunner(const SharedModel& shared, int stage, Transport* transport,
                         StagePlace place)
    : shared_(shared), stage_(stage), transport_(transport), place_(place) {
  const auto s = static_cast<std::size_t>(stage);
  const std::size_t end = shared.layout.first_layer[s + 1];
  std::size_t first = shared.layout.first_layer[s];
  const auto tied_of = [&](std::size_t layer) {
    std::vector<TiedUse*> uses;
    for (const auto& use : shared.tied_uses) {
      if (use->layer == layer) uses.push_back(use.get());
    }
    return uses;
  };
  // A layer with a tied parameter is a segment of its own; what lies between is one.
  for (std::size_t layer = first; layer < end; ++layer) {
    auto tied = tied_of(layer);
    const bool alone = !tied.empty();
    if (alone && first < layer) {
      segments_.emplace_back(*shared.model, first, layer, std::vector<TiedUse*>());
      segment_end_.push_back(layer);
      first = layer;
    }
    if (alone || layer + 1 == end) {
      segments_.emplace_back(*shared.model, first, layer + 1, std::move(tied));
      segment_end_.push_back(layer + 1);
      first = layer + 1;
    }
  }
}

ForwardContext StageRunner::context(const StepInput& input, int micro_batch) const {
  ForwardContext context;
  context.run_seed = input.run_seed;
  context.step = input.step;
  context.micro_batch = micro_batch;
  context.training = input.training;
  context.device = shared_.layout.device_of(stage_);
  context.check_finite = input.check_finite;
  // Where the loss is scaled, gradients that overflow are nothing unusual.
  context.watch_gradients = input.check_finite && input.loss_scale == 1;
  return context;
}

Message StageRunner::receive(const MessageKey& key) {
  const auto start = std::chrono::steady_clock::now();
  Message message = transport_->receive(shared_.layout.rank_of(stage_), key);
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (c10::Event* begin = std::exchange(begin_, nullptr)) begin->record(place_.stream->stream());
  for (const auto& tensor : message.tensors) MemoryMeter::recharge(tensor, place_.memory_slot);
  return message;
}

Message StageRunner::take_input(const StepInput& input, int micro_batch) {
  if (stage_ > 0) {
    return receive({MessageKind::kActivation, stage_, micro_batch});
  }
  Message message;
  for (const auto& tensor : input.inputs[static_cast<std::size_t>(micro_batch)])
    message.tensors.push_back(tensor.to(shared_.layout.device_of(stage_), /*non_blocking=*/true));
  message.needs_gradient.assign(message.tensors.size(), 0);
  return message;
}

/// Tensors that go to another graph: detached, with what the receiver must know of them. Where
/// there is no graph to ask (R will make it), whatever may learn is said to want a gradient.
Message StageRunner::boundary(const Tensors& tensors, std::size_t last_layer,
                              bool has_graph) const {
  Message message;
  for (const auto& tensor : tensors) {
    const bool may =
        torch::isFloatingType(tensor.scalar_type()) && shared_.gradient_flows[last_layer] != 0;
    message.needs_gradient.push_back((has_graph ? tensor.requires_grad() : may) ? 1 : 0);
    message.tensors.push_back(tensor.detach());
  }
  return message;
}

SegmentRun StageRunner::leaves(const Message& input) const {
  SegmentRun run;
  for (std::size_t i = 0; i < input.tensors.size(); ++i) {
    run.inputs.push_back(input.tensors[i].detach().requires_grad_(input.needs_gradient[i] != 0));
  }
  return run;
}

Message StageRunner::popped(Run* run, std::map<std::string, Message>* local,
                            const std::string& name, int micro_batch) {
  if (auto found = local->extract(name)) return std::move(found.mapped());
  if (const auto kept = run->skips.find(name); kept != run->skips.end()) return kept->second;
  const int index = shared_.skip_index.at(name);
  Message message = receive({MessageKind::kSkip, stage_, micro_batch, index});
  run->skips[name] = message;
  return message;
}

void StageRunner::stash(std::map<std::string, Message>* local, const std::string& name,
                        const torch::Tensor& tensor, std::size_t last_layer, bool keep_graph,
                        bool send, int micro_batch) {
  Message message = boundary({tensor}, last_layer, keep_graph);
  const int index = shared_.skip_index.at(name);
  const int to = shared_.layout.stage_of(shared_.skips[static_cast<std::size_t>(index)].to_layer);
  if (to == stage_) {
    (*local)[name] = std::move(message);
  } else if (send) {
    transport_->send(shared_.layout.rank_of(to), {MessageKind::kSkip, to, micro_batch, index},
                     std::move(message));
  }
}

SegmentOutputs StageRunner::run_segments(const ForwardContext& context, Run* run, bool send_stashes,
                                         int micro_batch) {
  std::map<std::string, Message> local;
  Message x = run->input;
  for (std::size_t k = 0;; ++k) {
    SegmentRun segment = leaves(x);
    for (const auto& name : segments_[k].pops()) {
      const Message skip = popped(run, &local, name, micro_batch);
      segment.pops.push_back(skip.tensors[0].detach().requires_grad_(skip.needs_gradient[0] != 0));
    }
    SegmentOutputs made = segments_[k].forward(context, segment);
    const std::size_t last_layer = segment_end_[k] - 1;
    for (std::size_t i = 0; i < segments_[k].stashes().size(); ++i) {
      stash(&local, segments_[k].stashes()[i], made.stashes[i], last_layer, context.keep_graph,
            send_stashes, micro_batch);
    }
    run->segments.push_back(std::move(segment));
    if (k + 1 == segments_.size()) return made;
    x = boundary(made.outputs, last_layer, context.keep_graph);
    run->segments.back().ends = ends_of(std::move(made));
  }
}

/// The micro-batch's part of the loss of the mini-batch, which the backward starts from.
torch::Tensor StageRunner::scaled_loss(const StepInput& input, int micro_batch,
                                       const Tensors& outputs) {
  const auto m = static_cast<std::size_t>(micro_batch);
  Tensors targets;
  for (const auto& target : input.targets[m])
    targets.push_back(target.to(shared_.layout.device_of(stage_), /*non_blocking=*/true));
  const LossValue value = shared_.loss.value(outputs, targets);
  if (!value.sum.defined() || value.sum.numel() != 1)
    throw InvalidArgument("loss", "its sum must be a tensor of one number");
  losses_[micro_batch] = {value.sum.detach(),
                          input.weights.empty() ? value.weight : input.weights[m]};
  return value.sum / input.weight;
}

/// Sends the stage's output on its way, or makes the loss of it.
void StageRunner::finish_forward(const StepInput& input, const ForwardContext& context, Run* run,
                                 SegmentOutputs made, bool forward_only) {
  const int m = context.micro_batch;
  if (!is_last()) {
    if (!context.recomputing) {
      outgoing_[m] = boundary(made.outputs, segment_end_.back() - 1, context.keep_graph);
      if (shared_.layout.rank_of(stage_ + 1) == shared_.layout.rank_of(stage_)) send_forward(m);
    }
  } else {
    if (forward_only) {
      for (const auto& tensor : made.outputs) outputs_[m].push_back(tensor.detach());
    }
    if (input.targets[static_cast<std::size_t>(m)].empty()) return;
    made.outputs = {scaled_loss(input, m, made.outputs)};
    if (context.keep_graph)
      run->loss_gradient = torch::full_like(made.outputs[0], input.loss_scale);
  }
  if (context.keep_graph) run->segments.back().ends = ends_of(std::move(made));
}

void StageRunner::forward(const StepInput& input, int micro_batch, bool recomputed,
                          bool forward_only) {
  Run run;
  run.input = take_input(input, micro_batch);
  ForwardContext forward_context = context(input, micro_batch);
  forward_context.keep_graph = !recomputed && !forward_only;
  {
    const torch::AutoGradMode mode(forward_context.keep_graph);
    const AutocastScope autocast(forward_context.device, input.precision);
    SegmentOutputs made = run_segments(forward_context, &run, true, micro_batch);
    finish_forward(input, forward_context, &run, std::move(made), forward_only);
  }
  if (forward_only) return;
  if (recomputed) {
    run.segments.clear();
  } else {
    run.input = {};
    run.skips.clear();
  }
  runs_[micro_batch] = std::move(run);
}

void StageRunner::recompute(const StepInput& input, int micro_batch) {
  Run& run = runs_.at(micro_batch);
  ForwardContext again = context(input, micro_batch);
  again.recomputing = true;
  const AutocastScope autocast(again.device, input.precision);
  finish_forward(input, again, &run, run_segments(again, &run, false, micro_batch), false);
  run.input = {};
  run.skips.clear();
}

void StageRunner::backward(int micro_batch, bool split) {
  Run& run = runs_.at(micro_batch);
  Tensors gradients;
  if (is_last()) {
    gradients = {std::move(run.loss_gradient)};
  } else {
    gradients = receive({MessageKind::kGradient, stage_, micro_batch}).tensors;
  }
  std::map<std::string, torch::Tensor> local;
  for (std::size_t k = segments_.size(); k-- > 0;) {
    SegmentRun& segment = run.segments[k];
    for (const auto& name : segments_[k].stashes()) {
      const int index = shared_.skip_index.at(name);
      if (auto found = local.extract(name)) {
        gradients.push_back(found.mapped());
      } else {
        gradients.push_back(
            receive({MessageKind::kSkipGradient, stage_, micro_batch, index}).tensors[0]);
      }
    }
    const std::size_t num_inputs = segment.inputs.size();
    Tensors all = segments_[k].backward(&segment, std::move(gradients), split);
    for (std::size_t i = 0; i < segments_[k].pops().size(); ++i) {
      const auto& name = segments_[k].pops()[i];
      const int index = shared_.skip_index.at(name);
      const int to =
          shared_.layout.stage_of(shared_.skips[static_cast<std::size_t>(index)].from_layer);
      if (to == stage_) {
        local[name] = all[num_inputs + i];
      } else {
        transport_->send(shared_.layout.rank_of(to),
                         {MessageKind::kSkipGradient, to, micro_batch, index},
                         {{all[num_inputs + i]}, {}});
      }
    }
    all.resize(num_inputs);
    gradients = std::move(all);
  }
  if (!split) runs_.erase(micro_batch);
  if (stage_ == 0) return;
  outgoing_gradients_[micro_batch] = {std::move(gradients), {}};
  if (shared_.layout.rank_of(stage_ - 1) == shared_.layout.rank_of(stage_))
    send_backward(micro_batch);
}

void StageRunner::backward_weight(int micro_batch) {
  Run& run = runs_.at(micro_batch);
  for (std::size_t k = segments_.size(); k-- > 0;) segments_[k].backward_weight(&run.segments[k]);
  runs_.erase(micro_batch);
}

void StageRunner::send_forward(int micro_batch) {
  transport_->send(shared_.layout.rank_of(stage_ + 1),
                   {MessageKind::kActivation, stage_ + 1, micro_batch},
                   std::move(outgoing_.extract(micro_batch).mapped()));
}

void StageRunner::send_backward(int micro_batch) {
  transport_->send(shared_.layout.rank_of(stage_ - 1),
                   {MessageKind::kGradient, stage_ - 1, micro_batch},
                   std::move(outgoing_gradients_.extract(micro_batch).mapped()));
}

void StageRunner::finish_mini_batch() {
  for (Segment& segment : segments_) segment.finish_mini_batch();
}

bool StageRunner::has_norms() const {
  return std::any_of(segments_.begin(), segments_.end(),
                     [](const Segment& segment) { return segment.has_norms(); });
}

void StageRunner::clear_results() {
  losses_.clear();
  outputs_.clear();
}

void StageRunner::abandon_norms() {
  for (Segment& segment : segments_) segment.abandon();
}

void StageRunner::abandon() {
  abandon_norms();
  runs_.clear();
  outgoing_.clear();
  outgoing_gradients_.clear();
  clear_results();
}

}  // namespace pipewright
