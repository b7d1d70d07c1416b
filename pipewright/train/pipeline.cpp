#include "pipewright/train/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/cores.h"
#include "pipewright/ir/validate.h"
#include "pipewright/schedule/lower.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/train/step_program.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

/// What the user could change, most useful first.
std::string memory_advice(const Strategy& strategy) {
  std::string advice = "to use less: ";
  if (strategy.recompute == RecomputeMode::kNone) advice += "recompute = kAll, ";
  if (strategy.schedule == "gpipe") advice += "schedule = 1f1b, which holds fewer micro-batches, ";
  if (strategy.precision == Precision::kFull) advice += "precision = kBf16, ";
  return advice + fmt::format("micro_batches above {} (smaller ones), or ranks above {}",
                              strategy.micro_batches, strategy.ranks);
}

Program lowered(Program program, RecomputeMode recompute, bool update, bool reduce) {
  if (recompute != RecomputeMode::kNone) {
    program = lower_recompute(program, recompute == RecomputeMode::kExceptLast
                                           ? RecomputePass::kExceptLast
                                           : RecomputePass::kAll);
  }
  program = lower_sends(program);
  if (update && reduce) program = lower_reduce(program);
  if (update) program = lower_step(program);
  validate(program);
  return program;
}

}  // namespace

int threads_per_rank(const Strategy& strategy, bool one_process) {
  if (strategy.threads_per_rank > 0) return strategy.threads_per_rank;
  if (!one_process) return torch::get_num_threads();
  return std::max(1, static_cast<int>(usable_cores().size()) / strategy.ranks);
}

Program make_program(const Strategy& strategy, int micro_batches) {
  const bool asynchronous = find_schedule(strategy.schedule).asynchronous;
  return make_schedule({.name = strategy.schedule,
                        .ranks = strategy.ranks,
                        .micro_batches = micro_batches,
                        .chunks = strategy.chunks,
                        .updates_every = asynchronous ? strategy.merge_steps : 0,
                        .vertical_sync = strategy.vertical_sync});
}

Program step_program(const Strategy& strategy, int micro_batches) {
  return lowered(make_program(strategy, micro_batches), strategy.recompute, true,
                 strategy.replicas > 1);
}

Program lowered_piece(Program piece, const Strategy& strategy) {
  if (piece.num_instructions() == 0) return piece;
  return lowered(std::move(piece), strategy.recompute, true, strategy.replicas > 1);
}

Pipeline::Pipeline(const SharedModel& shared, const Strategy& strategy, const Grid& grid,
                   const Calls& calls)
    : shared_(shared),
      strategy_(strategy),
      grid_(grid),
      transport_(make_transport(grid, strategy, shared.layout.devices, shared.layout.placement)),
      sharing_(transport_.get(), strategy.ranks),
      memory_slots_(shared.layout.placement.size(), MemoryMeter::kOutside),
      workers_(grid.num_here(), threads_per_rank(strategy, grid.one_process()), strategy.pin) {
  for (int i = 0; i < grid.num_here(); ++i) {
    RankOptions options;
    options.rank = grid.first_here() + i;
    options.transport = transport_.get();
    options.update = calls.update;
    options.start_reduce = calls.start_reduce;
    options.reduce = calls.reduce;
    options.recomputes_later = strategy.recompute != RecomputeMode::kNone;
    options.memory_advice = memory_advice(strategy);
    options.deadline = std::chrono::duration<double>(strategy.deadline_seconds);
    options.all_slots = &memory_slots_;
    ranks_.push_back(std::make_unique<RankRunner>(shared, std::move(options)));
    for (const auto& stage : ranks_.back()->stages())
      memory_slots_[static_cast<std::size_t>(stage->stage())] = stage->place().memory_slot;
  }
}

/// Made once for each number of micro-batches.
const Program& Pipeline::program(int micro_batches, StepKind kind) {
  const auto key = std::pair(micro_batches, kind);
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  Strategy synchronous = strategy_;
  if (find_schedule(strategy_.schedule).asynchronous) {  // its other steps: the same stages
    synchronous.schedule = "1f1b";
    synchronous.vertical_sync = false;
  }
  Program made = make_program(synchronous, micro_batches);
  RecomputeMode recompute = strategy_.recompute;
  if (kind == StepKind::kForward) {
    // The stages stay where they are: the forwards of the training program alone.
    made.forward_only = true;
    recompute = RecomputeMode::kNone;
    for (auto& list : made.ranks)
      std::erase_if(list, [](Instruction i) { return i.kind() != Kind::kForward; });
  }
  made = lowered(std::move(made), recompute, kind == StepKind::kUpdate, grid_.replicas > 1);
  return programs_.emplace(key, std::move(made)).first->second;
}

void Pipeline::run(StepKind kind, const StepInput& input, Timeline* timeline) {
  const Program& list = program(static_cast<int>(input.inputs.size()), kind);
  std::vector<RankTrace> traces(ranks_.size());
  const auto start = Clock::now();
  for (const auto& rank : ranks_) {
    for (const auto& stream : rank->streams()) stream->wait_for_current();
  }
  try {
    run_on_ranks(
        [&](int number) {
          const auto r = static_cast<std::size_t>(number);
          ranks_[r]->run(list, ProgramInput(input), start, &traces[r]);
        },
        [] {});
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
  for (RankTrace& trace : traces) {
    timeline->ranks.push_back(std::move(trace.spans));
    timeline->memory.push_back(std::move(trace.memory));
  }
}

void Pipeline::run_on_ranks(const std::function<void(int rank)>& job,
                            const std::function<void()>& on_failure) {
  workers_.run(job, [&] {
    on_failure();
    transport_->abort();
  });
}

void Pipeline::on_stages_of(RankRunner& rank, const std::function<void(StageRunner&)>& work) {
  for (const auto& stage : rank.stages()) {
    const UseStream stream(*stage->place().stream);
    const MemoryScope memory(stage->place().memory_slot);
    work(*stage);
  }
}

void Pipeline::on_every_stage(const std::function<void(StageRunner&)>& work) {
  workers_.run(
      [&](int number) {
        RankRunner& runner = *ranks_[static_cast<std::size_t>(number)];
        on_stages_of(runner, work);
        for (const auto& stream : runner.streams())
          stream->synchronize(std::chrono::duration<double>(strategy_.deadline_seconds));
      },
      [] {});
}

RankRunner& Pipeline::rank_of(int stage) const {
  return *ranks_[static_cast<std::size_t>(shared_.layout.rank_of(stage) - grid_.first_here())];
}

/// What fails in one process fails in all.
void Pipeline::fail(const std::string& why) {
  if (!grid_.one_process())
    grid_.world->fail(fmt::format("rank {} failed: {}", grid_.world->place().rank, why));
  abandon();
}

void Pipeline::abandon() {
  transport_->reset();
  sharing_.reset();
  for (auto& rank : ranks_) rank->abandon();
}

}  // namespace pipewright
