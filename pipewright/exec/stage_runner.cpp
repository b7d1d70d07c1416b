#include "pipewright/exec/stage_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "pipewright/base/error.h"
#include "pipewright/memory/meter.h"
#include "pipewright/nn/leaf_gradient.h"

namespace pipewright {
namespace {

GraphEnds ends_of(SegmentOutputs made) {
  made.outputs.insert(made.outputs.end(), made.stashes.begin(), made.stashes.end());
  return made.outputs;
}

}  // namespace

StageRunner::StageRunner(const SharedModel& shared, int stage, Transport* transport,
                         StagePlace place)
    : shared_(shared), stage_(stage), transport_(transport), place_(place) {
  const auto s = static_cast<std::size_t>(stage);
  std::size_t first = shared.layout.first_layer[s];
  std::vector<char> alone(shared.layout.first_layer[s + 1] - first);
  for (const auto& use : shared.tied_uses) {
    if (use->layer >= first && use->layer - first < alone.size()) alone[use->layer - first] = 1;
  }
  // A layer with a tied parameter is a segment of its own; of the others, those that are always run
  // together are one.
  const GroupedOperations grouped = group_layers(shared.recompute[s], alone);
  for (const int size : grouped.sizes) {
    const std::size_t end = first + static_cast<std::size_t>(size);
    std::vector<TiedUse*> tied;
    for (const auto& use : shared.tied_uses) {
      if (use->layer == first) tied.push_back(use.get());
    }
    segments_.emplace_back(*shared.model, first, end, std::move(tied));
    segment_end_.push_back(end);
    first = end;
  }
  recomputing_ = grouped.operations;
  offload_ = !shared.offload.empty() && shared.offload[s] != 0;
  saving_ = save_everything(static_cast<int>(segments_.size()));
  for (int k = 1; k <= static_cast<int>(segments_.size()); ++k)
    passing_.push_back({LayerOp::kForwardDiscard, k});
}

ForwardContext StageRunner::context(const StepInput& input, int micro_batch) const {
  ForwardContext context;
  context.run_seed = input.run_seed;
  context.step = input.step;
  context.micro_batch = micro_batch;
  context.global_micro_batch = input.first_micro_batch + static_cast<int>(input.index(micro_batch));
  context.training = input.training;
  context.device = shared_.layout.device_of(stage_);
  context.check_finite = input.check_finite;
  // Where the loss is scaled, gradients that overflow are nothing unusual.
  context.watch_gradients = input.check_finite && input.loss_scale == 1;
  return context;
}

Message StageRunner::receive(int from_stage, const MessageKey& key) {
  const auto start = std::chrono::steady_clock::now();
  Message message =
      transport_->receive(shared_.layout.rank_of(stage_), shared_.layout.rank_of(from_stage), key);
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (c10::Event* begin = std::exchange(begin_, nullptr)) begin->record(place_.stream->stream());
  for (const auto& tensor : message.tensors) MemoryMeter::recharge(tensor, place_.memory_slot);
  return message;
}

void StageRunner::expect(int from_stage, const MessageKey& key) {
  transport_->expect(shared_.layout.rank_of(from_stage), key);
}

/// Skips have been on their way for longer than what they come with.
void StageRunner::expect_forward(int micro_batch) {
  expect(stage_ - 1, {MessageKind::kActivation, stage_, micro_batch});
  for (const Segment& segment : segments_) {
    for (const auto& name : segment.pops()) {
      const int from = stage_that_stashes(name);
      if (from != stage_)
        expect(from, {MessageKind::kSkip, stage_, micro_batch, shared_.skip_index.at(name)});
    }
  }
}

void StageRunner::expect_backward(int micro_batch) {
  expect(stage_ + 1, {MessageKind::kGradient, stage_, micro_batch});
  for (const Segment& segment : segments_) {
    for (const auto& name : segment.stashes()) {
      const int from = stage_that_pops(name);
      if (from != stage_)
        expect(from,
               {MessageKind::kSkipGradient, stage_, micro_batch, shared_.skip_index.at(name)});
    }
  }
}

void StageRunner::send(const MessageKey& key, Message message) {
  if (place_.all_slots != nullptr) {
    const int slot = (*place_.all_slots)[static_cast<std::size_t>(key.stage)];
    for (const auto& tensor : message.tensors) MemoryMeter::recharge(tensor, slot);
  }
  transport_->send(shared_.layout.rank_of(key.stage), key, std::move(message));
}

Message StageRunner::take_input(const StepInput& input, int micro_batch) {
  if (stage_ > 0) {
    return receive(stage_ - 1, {MessageKind::kActivation, stage_, micro_batch});
  }
  Message message;
  for (const auto& tensor : input.inputs[input.index(micro_batch)])
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

int StageRunner::stage_that_pops(const std::string& name) const {
  const auto index = static_cast<std::size_t>(shared_.skip_index.at(name));
  return shared_.layout.stage_of(shared_.skips[index].to_layer);
}

int StageRunner::stage_that_stashes(const std::string& name) const {
  const auto index = static_cast<std::size_t>(shared_.skip_index.at(name));
  return shared_.layout.stage_of(shared_.skips[index].from_layer);
}

/// Held until the backward of the segment that pops it: it may be run again.
const Message& StageRunner::popped(Run* run, const std::string& name, int micro_batch) {
  const auto found = run->skips.find(name);
  if (found != run->skips.end()) return found->second;
  const int index = shared_.skip_index.at(name);
  return run->skips[name] =
             receive(stage_that_stashes(name), {MessageKind::kSkip, stage_, micro_batch, index});
}

void StageRunner::stash(Run* run, const std::string& name, Message message, int micro_batch) {
  const int to = stage_that_pops(name);
  if (to == stage_) {
    run->skips[name] = std::move(message);
    return;
  }
  send({MessageKind::kSkip, to, micro_batch, shared_.skip_index.at(name)}, std::move(message));
}

/// The micro-batch's part of the loss of the mini-batch, which the backward starts from.
torch::Tensor StageRunner::scaled_loss(const StepInput& input, int micro_batch,
                                       const Tensors& outputs) {
  const std::size_t m = input.index(micro_batch);
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

void StageRunner::pass_on(const StepInput& input, const ForwardContext& context,
                          std::size_t segment, Run* run, SegmentOutputs* made, bool forward_only) {
  const int m = context.micro_batch;
  const std::size_t last_layer = segment_end_[segment] - 1;
  if (segment + 1 < segments_.size()) {
    run->inputs[segment + 1] = boundary(made->outputs, last_layer, context.keep_graph);
    return;
  }
  if (!is_last()) {
    if (context.recomputing) return;
    outgoing_[m] = boundary(made->outputs, last_layer, context.keep_graph);
    if (shared_.layout.rank_of(stage_ + 1) == shared_.layout.rank_of(stage_)) send_forward(m);
    return;
  }
  if (forward_only) {
    for (const auto& tensor : made->outputs) outputs_[m].push_back(tensor.detach());
  }
  if (input.targets[input.index(m)].empty()) return;
  made->outputs = {scaled_loss(input, m, made->outputs)};
  if (context.keep_graph) run->loss_gradient = torch::full_like(made->outputs[0], input.loss_scale);
}

/// Sends a kept input to the host. No more than two copies are under way at a time: what is copied
/// has its memory until then.
void StageRunner::park(Run* run, std::size_t segment) {
  constexpr std::size_t kMostLeaving = 2;
  if (leaving_.size() == kMostLeaving) {
    leaving_.front()->block(place_.stream->stream());
    leaving_.pop_front();
  }
  Message& input = run->inputs[segment];
  host_copies_.depart(&input, torch::kCPU);
  if (!input.ready.empty()) leaving_.push_back(input.ready.back());
  input.ready.clear();
  run->parked[segment] = Parked::kOnHost;
}

void StageRunner::start_back(Run* run, std::size_t segment) {
  host_copies_.depart(&run->inputs[segment], shared_.layout.device_of(stage_));
  for (const auto& tensor : run->inputs[segment].tensors)
    MemoryMeter::recharge(tensor, place_.memory_slot);
  run->parked[segment] = Parked::kComingBack;
}

void StageRunner::bring_back(Run* run, std::size_t segment) {
  if (run->parked[segment] == Parked::kHere) return;
  if (run->parked[segment] == Parked::kOnHost) start_back(run, segment);
  host_copies_.arrive(&run->inputs[segment], shared_.layout.device_of(stage_), {}, {});
  run->parked[segment] = Parked::kHere;
}

/// Starts the copy that the next forward which needs one will want, beside what runs meanwhile.
void StageRunner::bring_next_back(Run* run) {
  for (std::size_t i = run->next; offload_ && i < run->operations->size(); ++i) {
    const Operation& operation = (*run->operations)[i];
    if (operation.op == LayerOp::kBackward) continue;
    const auto k = static_cast<std::size_t>(operation.layer - 1);
    if (run->parked[k] == Parked::kOnHost) start_back(run, k);
    return;
  }
}

/// The run's next operation, which is a forward.
void StageRunner::run_forward(const StepInput& input, int micro_batch, Run* run,
                              bool forward_only) {
  const Operation operation = (*run->operations)[run->next++];
  const auto k = static_cast<std::size_t>(operation.layer - 1);
  ForwardContext now = context(input, micro_batch);
  now.keep_graph = operation.op == LayerOp::kForwardSave;
  now.recomputing = std::exchange(run->been_through[k], 1) != 0;
  const torch::AutoGradMode mode(now.keep_graph);
  const AutocastScope autocast(now.device, input.precision);
  bring_back(run, k);
  SegmentRun segment = leaves(run->inputs[k]);
  for (const auto& name : segments_[k].pops()) {
    const Message& skip = popped(run, name, micro_batch);
    segment.pops.push_back(skip.tensors[0].detach().requires_grad_(skip.needs_gradient[0] != 0));
  }
  const OwnGraphs own(&copies_);
  SegmentOutputs made = segments_[k].forward(now, segment);
  for (std::size_t i = 0; i < made.stashes.size() && !now.recomputing; ++i) {
    stash(run, segments_[k].stashes()[i],
          boundary({made.stashes[i]}, segment_end_[k] - 1, now.keep_graph), micro_batch);
  }
  pass_on(input, now, k, run, &made, forward_only);
  if (operation.op != LayerOp::kForwardKeep) {
    run->inputs[k] = {};
  } else if (offload_ && run->operations == &recomputing_) {
    park(run, k);
  }
  if (!now.keep_graph) return;
  segment.ends = ends_of(std::move(made));
  run->segments[k] = std::move(segment);
}

StageRunner::Run StageRunner::start(const StepInput& input, int micro_batch,
                                    const std::vector<Operation>& operations) {
  Run run;
  run.operations = &operations;
  run.inputs.resize(segments_.size());
  run.parked.resize(segments_.size(), Parked::kHere);
  run.segments.resize(segments_.size());
  run.been_through.resize(segments_.size());
  run.inputs[0] = take_input(input, micro_batch);
  return run;
}

void StageRunner::forward(const StepInput& input, int micro_batch, bool recomputed,
                          bool forward_only) {
  Run run =
      start(input, micro_batch, forward_only ? passing_ : (recomputed ? recomputing_ : saving_));
  while (run.been_through.back() == 0) run_forward(input, micro_batch, &run, forward_only);
  if (!forward_only) runs_[micro_batch] = std::move(run);
}

void StageRunner::recompute(const StepInput& input, int micro_batch) {
  Run& run = runs_.at(micro_batch);
  while ((*run.operations)[run.next].op != LayerOp::kBackward)
    run_forward(input, micro_batch, &run, false);
}

/// The run's next operation, which is a backward.
void StageRunner::run_backward(int micro_batch, Run* run, bool split) {
  const auto k = static_cast<std::size_t>((*run->operations)[run->next++].layer - 1);
  SegmentRun& segment = run->segments[k];
  bring_next_back(run);
  if (k + 1 < run->inputs.size()) run->inputs[k + 1] = {};  // nobody runs forward from here again
  Tensors gradients = std::move(run->gradients);
  for (const auto& name : segments_[k].stashes()) {
    if (auto found = run->skip_gradients.extract(name)) {
      gradients.push_back(found.mapped());
      continue;
    }
    const int index = shared_.skip_index.at(name);
    gradients.push_back(
        receive(stage_that_pops(name), {MessageKind::kSkipGradient, stage_, micro_batch, index})
            .tensors[0]);
  }
  const std::size_t num_inputs = segment.inputs.size();
  Tensors all = segments_[k].backward(&segment, std::move(gradients), split);
  for (std::size_t i = 0; i < segments_[k].pops().size(); ++i) {
    const auto& name = segments_[k].pops()[i];
    const int to = stage_that_stashes(name);
    run->skips.erase(name);
    if (to == stage_) {
      run->skip_gradients[name] = all[num_inputs + i];
      continue;
    }
    send({MessageKind::kSkipGradient, to, micro_batch, shared_.skip_index.at(name)},
         {{all[num_inputs + i]}});
  }
  all.resize(num_inputs);
  run->gradients = std::move(all);
  run->inputs[k] = {};
}

void StageRunner::backward(const StepInput& input, int micro_batch, bool split) {
  Run& run = runs_.at(micro_batch);
  if (is_last()) {
    run.gradients = {std::move(run.loss_gradient)};
  } else {
    run.gradients = receive(stage_ + 1, {MessageKind::kGradient, stage_, micro_batch}).tensors;
  }
  while (run.next < run.operations->size()) {
    if ((*run.operations)[run.next].op == LayerOp::kBackward) {
      run_backward(micro_batch, &run, split);
    } else {
      run_forward(input, micro_batch, &run, false);
    }
  }
  Tensors gradients = std::move(run.gradients);
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
  send({MessageKind::kActivation, stage_ + 1, micro_batch},
       std::move(outgoing_.extract(micro_batch).mapped()));
}

void StageRunner::send_backward(int micro_batch) {
  send({MessageKind::kGradient, stage_ - 1, micro_batch},
       std::move(outgoing_gradients_.extract(micro_batch).mapped()));
}

std::vector<double> StageRunner::collected_norms() const {
  std::vector<double> all;
  for (const Segment& segment : segments_) segment.collected_norms(&all);
  return all;
}

void StageRunner::add_norms(const std::vector<double>& collected) {
  std::span<const double> left = collected;
  for (Segment& segment : segments_) left = segment.add_norms(left);
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
  forget_copies();
  leaving_.clear();
  runs_.clear();
  outgoing_.clear();
  outgoing_gradients_.clear();
  clear_results();
}

}  // namespace pipewright
