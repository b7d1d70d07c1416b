#include "pipewright/exec/rank_runner.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
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

void RankRunner::execute(Instruction i, const Program& program, const StepInput& input) {
  StageRunner& stage = at(i.stage());
  const int m = i.micro_batch();
  // Of a split backward it is W that adds to the gradients.
  const bool adds = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardWeight;
  if (reduces_ && adds && m + 1 == program.num_micro_batches) options_.start_reduce(i.stage());
  switch (i.kind()) {
    case Kind::kForward: {
      const auto cell = static_cast<std::size_t>(i.stage() * program.num_micro_batches + m);
      stage.forward(input, m, recomputed_[cell] != 0, program.forward_only);
      break;
    }
    case Kind::kBackward: stage.backward(input, m, false); break;
    case Kind::kBackwardInput: stage.backward(input, m, true); break;
    case Kind::kBackwardWeight: stage.backward_weight(m); break;
    case Kind::kRecompute: stage.recompute(input, m); break;
    case Kind::kSendForward: stage.send_forward(m); break;
    case Kind::kSendBackward: stage.send_backward(m); break;
    case Kind::kRecvForward: stage.expect_forward(m); break;  // taken by the one that uses it
    case Kind::kRecvBackward: stage.expect_backward(m); break;
    case Kind::kReduce: options_.reduce(i.stage()); break;
    case Kind::kStep: update_waited_ = options_.update(i.stage()); break;
  }
}

void RankRunner::execute_or_explain(Instruction i, const Program& program, const StepInput& input) {
  try {
    execute(i, program, input);
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& error) {
    explain(i, message_of(error), is_out_of_memory(error));
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

void RankRunner::find_recomputed(const Program& program) {
  reduces_ = false;
  recomputed_.assign(static_cast<std::size_t>(program.num_stages() * program.num_micro_batches), 0);
  for (const Instruction i : program.ranks[static_cast<std::size_t>(options_.rank)]) {
    if (i.kind() == Kind::kReduce) reduces_ = true;
    if (i.kind() != Kind::kRecompute) continue;
    recomputed_[static_cast<std::size_t>(i.stage() * program.num_micro_batches + i.micro_batch())] =
        1;
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

void RankRunner::run(const Program& program, const StepInput& input,
                     std::chrono::steady_clock::time_point start, RankTrace* trace) {
  find_recomputed(program);
  warm_up_streams();
  const auto& list = program.ranks[static_cast<std::size_t>(options_.rank)];
  std::vector<std::int64_t> live;  // after each span
  live.reserve(list.size());
  clock_.start(start, streams_);
  for (const Instruction i : list) {
    StageRunner& stage = at(i.stage());
    const UseStream stream(*stage.place().stream);
    const MemoryScope memory(stage.place().memory_slot);
    if (is_recv(i.kind())) {
      execute_or_explain(i, program, input);
      continue;
    }
    if (stage.place().stream->on_gpu())  // several stages may share it
      MemoryMeter::charge_stream(stage.place().stream->stream(), stage.place().memory_slot);
    clock_.begin(stage);
    execute_or_explain(i, program, input);
    Span span;
    span.kind = i.kind();
    span.stage = i.stage();
    span.micro_batch = i.micro_batch();
    clock_.end(stage, span, stage.take_waited() + std::exchange(update_waited_, 0.0));
    live.push_back(MemoryMeter::stats(memory_slot()).live_bytes);
  }
  for (const auto& stream : streams_) stream->synchronize(options_.deadline);
  trace->spans = clock_.spans();
  for (std::size_t k = 0; k < live.size(); ++k)
    trace->memory.push_back({trace->spans[k].end, static_cast<double>(live[k])});
}

void RankRunner::abandon() {
  for (auto& stage : stages_) stage->abandon();
}

}  // namespace pipewright
