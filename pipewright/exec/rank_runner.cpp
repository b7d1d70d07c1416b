#include "pipewright/exec/rank_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/ir/receives.h"
#include "pipewright/torch/out_of_memory.h"

namespace pipewright {
namespace {

/// LibTorch's errors without the forty lines of its own stack.
const char* message_of(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  return own == nullptr ? error.what() : own->what_without_backtrace();
}

}  // namespace

RankRunner::RankRunner(const SharedModel& shared, RankOptions options)
    : options_(std::move(options)),
      by_stage_(static_cast<std::size_t>(shared.layout.num_stages()), nullptr) {
  for (int stage = 0; stage < shared.layout.num_stages(); ++stage) {
    if (shared.layout.rank_of(stage) != options_.rank) continue;
    stage_slots_.push_back(std::make_unique<MemorySlot>(slot_.number()));
    const StagePlace place{&stream_on(shared.layout.device_of(stage)),
                           stage_slots_.back()->number(), options_.all_slots};
    stages_.push_back(std::make_unique<StageRunner>(shared, stage, options_.transport, place));
    by_stage_[static_cast<std::size_t>(stage)] = stages_.back().get();
  }
}

const DeviceStream& RankRunner::stream_on(torch::Device device) {
  for (const auto& stream : streams_) {
    if (stream->device() == device) return *stream;
  }
  streams_.push_back(std::make_unique<DeviceStream>(device));
  return *streams_.back();
}

StageRunner& RankRunner::at(int stage) const {
  StageRunner* runner = by_stage_[static_cast<std::size_t>(stage)];
  internal_check(runner != nullptr, "an instruction is on its stage's rank");
  return *runner;
}

const ProgramInput::Part& ProgramInput::part(int micro_batch) const {
  auto found = parts_.rbegin();
  while (found->first > micro_batch) ++found;
  return *found;
}

int ProgramInput::number(int micro_batch) const {
  const Part& found = part(micro_batch);
  return found.input->first_number + micro_batch - found.first;
}

void RankRunner::start_versions(int stage, Tensors parameters) {
  versions_.insert_or_assign(stage, WeightVersions(std::move(parameters)));
  most_versions_[stage] = 1;
}

void RankRunner::execute(const Step& step, const Program& program, const ProgramInput& input) {
  const Instruction i = step.instruction;
  StageRunner& stage = at(i.stage());
  if (is_once_a_step(i.kind())) {
    if (i.kind() == Kind::kReduce) return options_.reduce(i.stage());
    stage.forget_copies();
    update_waited_ = options_.update(i.stage(), step.version);
    return;
  }
  const StepInput& of = input.of(i.micro_batch());
  const int m = input.number(i.micro_batch());
  if (step.completes) options_.start_reduce(i.stage());
  switch (i.kind()) {
    case Kind::kForward: stage.forward(of, m, step.recomputed, program.forward_only); break;
    case Kind::kBackward: stage.backward(of, m, false); break;
    case Kind::kBackwardInput: stage.backward(of, m, true); break;
    case Kind::kBackwardWeight: stage.backward_weight(m); break;
    case Kind::kRecompute: stage.recompute(of, m); break;
    case Kind::kSendForward: stage.send_forward(m); break;
    case Kind::kSendBackward: stage.send_backward(m); break;
    case Kind::kRecvForward: stage.expect_forward(m); break;  // taken by the one that uses it
    case Kind::kRecvBackward: stage.expect_backward(m); break;
    case Kind::kReduce:
    case Kind::kStep: break;
  }
}

/// The weights that the instruction uses, or is to make.
void RankRunner::take_version(const Step& step) {
  const auto found = versions_.find(step.instruction.stage());
  if (step.version < 0 || found == versions_.end()) return;
  WeightVersions& versions = found->second;
  if (step.instruction.kind() == Kind::kStep) {
    versions.advance(step.needed);
  } else if (step.instruction.kind() != Kind::kReduce) {
    versions.use(step.version);
  }
  // Not only here does another one come into use: see drop_before().
  if (std::exchange(copied_[found->first], versions.in_use()) != versions.in_use())
    at(found->first).forget_copies();
  int& most = most_versions_[found->first];
  most = std::max(most, versions.num_held());
}

void RankRunner::execute_or_explain(const Step& step, const Program& program,
                                    const ProgramInput& input) {
  try {
    take_version(step);
    execute(step, program, input);
    if (step.needed >= 0) versions_.at(step.instruction.stage()).drop_before(step.needed);
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& error) {
    explain(step.instruction, message_of(error), is_out_of_memory(error));
  }
}

void RankRunner::explain(Instruction i, const char* what, bool out_of_memory) const {
  const std::string where = fmt::format("rank {}, stage {}, {} ({})", options_.rank, i.stage(),
                                        to_text(i), kind_words(i.kind()));
  if (!out_of_memory) throw StageError("exec", fmt::format("{}: {}", where, what));
  const MemoryStats stats = MemoryMeter::stats(memory_slot());
  throw OutOfMemory(
      "exec", fmt::format("{}: out of memory; the rank's tensors take {} now, {} at its peak in "
                          "this step; {} ({})",
                          where, format_bytes(static_cast<double>(stats.live_bytes)),
                          format_bytes(static_cast<double>(stats.peak_bytes)),
                          options_.memory_advice, what));
}

/// What an instruction needs to know of those after it, found from the end.
void RankRunner::prepare(const Program& program) {
  const auto& list = program.ranks[static_cast<std::size_t>(options_.rank)];
  steps_.clear();
  for (const Instruction i : list) steps_.push_back({.instruction = i});
  std::vector<char> reduces(by_stage_.size());  // its REDUCE is to come, with no backward before it
  recomputed_.assign(by_stage_.size() * static_cast<std::size_t>(program.num_micro_batches), 0);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const Instruction i = step->instruction;
    const auto stage = static_cast<std::size_t>(i.stage());
    if (i.kind() == Kind::kReduce) reduces[stage] = 1;
    // Of a split backward it is W that adds to the gradients.
    const bool adds = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardWeight;
    if (adds) step->completes = std::exchange(reduces[stage], 0) != 0;
    if (is_once_a_step(i.kind())) continue;
    char& recomputed = recomputed_[stage * static_cast<std::size_t>(program.num_micro_batches) +
                                   static_cast<std::size_t>(i.micro_batch())];
    if (i.kind() == Kind::kRecompute) recomputed = 1;
    if (i.kind() == Kind::kForward)
      step->recomputed = recomputed != 0 || (program.open && options_.recomputes_later);
  }
  if (!program.versions.empty()) prepare_versions(program);
  post_receives_early(program);
}

void RankRunner::post_receives_early(const Program& program) {
  std::vector<Step> listed = std::move(steps_);
  steps_.clear();
  for (const std::size_t k : early_receives(program, options_.rank)) steps_.push_back(listed[k]);
}

void RankRunner::prepare_versions(const Program& program) {
  const auto rank = static_cast<std::size_t>(options_.rank);
  std::map<int, int> needed;  // by stage: the oldest version
  for (const auto& stage : stages_) needed[stage->stage()] = program.keeps[rank];
  for (std::size_t k = steps_.size(); k-- > 0;) {
    Step& step = steps_[k];
    const Kind kind = step.instruction.kind();
    step.version = program.versions[rank][k];
    if (step.version < 0) continue;
    int& oldest = needed.at(step.instruction.stage());
    step.needed = oldest;
    if (!is_once_a_step(kind)) oldest = std::min(oldest, step.version);
  }
}

/// cuBLAS keeps a workspace for every thread and stream that multiplies (32 MiB each on an H200),
/// the autograd engine's thread among them. They are made here, once, on nobody's account: else the
/// first step would be charged for them, or not, by whether the stream was used before.
void RankRunner::warm_up_streams() {
  if (std::exchange(warm_, true)) return;
  for (const auto& stream : streams_) {
    if (!stream->on_gpu()) continue;
    const UseStream use(*stream);
    MemoryMeter::charge_stream(stream->stream(), MemoryMeter::kOutside);
    for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      const auto options = torch::TensorOptions(stream->device()).dtype(dtype);
      const auto weight = torch::ones({64, 64}, options).requires_grad_();
      const auto x = torch::ones({64, 64}, options).requires_grad_();
      torch::nn::functional::linear(x, weight, torch::ones({64}, options)).sum().backward();
    }
    stream->synchronize(options_.deadline);
  }
}

void RankRunner::run(const Program& program, const ProgramInput& input,
                     std::chrono::steady_clock::time_point start, RankTrace* trace) {
  prepare(program);
  warm_up_streams();
  std::vector<std::int64_t> live;  // after each span
  live.reserve(steps_.size());
  clock_.start(start, streams_);
  for (const Step& step : steps_) {
    const Instruction i = step.instruction;
    StageRunner& stage = at(i.stage());
    const UseStream stream(*stage.place().stream);
    const MemoryScope memory(stage.place().memory_slot);
    if (is_recv(i.kind())) {
      execute_or_explain(step, program, input);
      continue;
    }
    if (stage.place().stream->on_gpu())  // several stages may share it
      MemoryMeter::charge_stream(stage.place().stream->stream(), stage.place().memory_slot);
    clock_.begin(stage);
    execute_or_explain(step, program, input);
    Span span;
    span.kind = i.kind();
    span.stage = i.stage();
    span.micro_batch = i.micro_batch();
    span.version = step.version;
    clock_.end(stage, span, stage.take_waited() + std::exchange(update_waited_, 0.0));
    live.push_back(MemoryMeter::stats(memory_slot()).live_bytes);
  }
  for (auto& [stage, versions] : versions_) {
    if (!program.keeps.empty())
      versions.drop_before(program.keeps[static_cast<std::size_t>(options_.rank)]);
  }
  for (const auto& stage : stages_) stage->forget_copies();
  for (const auto& stream : streams_) stream->synchronize(options_.deadline);
  trace->spans = clock_.spans();
  for (std::size_t k = 0; k < live.size(); ++k)
    trace->memory.push_back({trace->spans[k].end, static_cast<double>(live[k])});
}

void RankRunner::abandon() {
  for (auto& stage : stages_) stage->abandon();
  for (auto& [stage, versions] : versions_) versions.drop_before(versions.newest());
}

}  // namespace pipewright
