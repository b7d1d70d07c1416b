#include "pipewright/schedule/lower.h"

#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/ir/walk.h"

namespace pipewright {
namespace {

/// Writes a Program's lists anew; everything else of it stays.
class Rewriter {
 public:
  explicit Rewriter(const Program& program) : program_(program) {
    lowered_.schedule = program.schedule;
    lowered_.num_micro_batches = program.num_micro_batches;
    lowered_.forward_only = program.forward_only;
    lowered_.placement = program.placement;
    lowered_.keeps = program.keeps;
    lowered_.carried = program.carried;
    lowered_.open = program.open;
    lowered_.ranks.resize(program.ranks.size());
    lowered_.versions.resize(program.versions.size());
  }

  void reserve(std::size_t factor) {
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      lowered_.ranks[rank].reserve(factor * program_.ranks[rank].size());
    }
  }

  /// `version` counts in an asynchronous Program alone.
  void add(std::size_t rank, Instruction i, int version) {
    lowered_.ranks[rank].push_back(i);
    if (program_.is_asynchronous()) lowered_.versions[rank].push_back(version);
  }

  void copy(std::size_t rank, std::size_t step) {
    add(rank, program_.ranks[rank][step], program_.version(rank, step));
  }

  Program take() { return std::move(lowered_); }

 private:
  const Program& program_;
  Program lowered_;
};

bool recomputes(const Program& program, Instruction i, RecomputePass pass) {
  if (i.kind() != Kind::kBackward && i.kind() != Kind::kBackwardInput) return false;
  return pass == RecomputePass::kAll || program.is_asynchronous() ||
         i.micro_batch() + 1 < program.num_micro_batches;
}

/// The last backward of a stage in a synchronous Program.
bool completes_gradients(const Program& program, Instruction i) {
  const bool makes_weights = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardWeight;
  return makes_weights && i.micro_batch() + 1 == program.num_micro_batches;
}

Program reduce_before_steps(const Program& program) {
  Rewriter lowered(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) {
      const Instruction i = program.ranks[rank][step];
      if (i.kind() == Kind::kStep) {
        lowered.add(rank, {Kind::kReduce, Stage{i.stage()}}, program.version(rank, step));
      }
      lowered.copy(rank, step);
    }
  }
  return lowered.take();
}

}  // namespace

Program lower_recompute(const Program& program, RecomputePass pass) {
  Rewriter lowered(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (std::size_t step = 0; step < program.ranks[rank].size(); ++step) {
      const Instruction i = program.ranks[rank][step];
      if (recomputes(program, i, pass)) {
        const Instruction again(Kind::kRecompute, Stage{i.stage()}, MicroBatch{i.micro_batch()});
        lowered.add(rank, again, program.version(rank, step));
      }
      lowered.copy(rank, step);
    }
  }
  return lowered.take();
}

Program lower_sends(const Program& program) {
  if (program.is_lowered())
    throw InvalidArgument("lower", "the program has sends and receives already");
  Rewriter lowered(program);
  lowered.reserve(3);
  const auto transfer = [&](Kind send, Kind recv, Instruction i, int to) {
    const int from_rank = program.placement[static_cast<std::size_t>(i.stage())];
    const int to_rank = program.placement[static_cast<std::size_t>(to)];
    if (from_rank == to_rank) return;
    const MicroBatch m{i.micro_batch()};
    lowered.add(static_cast<std::size_t>(from_rank), {send, Stage{i.stage()}, m}, -1);
    lowered.add(static_cast<std::size_t>(to_rank), {recv, Stage{to}, m}, -1);
  };
  Walk walk(program, Sends::kReturnAtOnce, WalkOrder::kRounds);
  while (const auto visit = walk.next()) {
    const Instruction i = visit->instruction;
    lowered.copy(visit->rank, walk.position(visit->rank) - 1);
    if (i.kind() == Kind::kForward && i.stage() + 1 < program.num_stages()) {
      transfer(Kind::kSendForward, Kind::kRecvForward, i, i.stage() + 1);
    }
    const bool gradient = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardInput;
    if (gradient && i.stage() > 0)
      transfer(Kind::kSendBackward, Kind::kRecvBackward, i, i.stage() - 1);
  }
  if (!walk.finished())
    throw ScheduleError("lower", "the program cannot run to its end; validate() says why");
  return lowered.take();
}

Program lower_reduce(const Program& program) {
  if (program.is_asynchronous()) return reduce_before_steps(program);
  Rewriter lowered(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank];
    for (std::size_t step = 0; step < list.size(); ++step) {
      const Instruction i = list[step];
      lowered.copy(rank, step);
      if (!completes_gradients(program, i)) continue;
      // The gradient that another rank waits for goes first.
      if (step + 1 < list.size() && list[step + 1].kind() == Kind::kSendBackward) {
        lowered.copy(rank, ++step);
      }
      lowered.add(rank, {Kind::kReduce, Stage{i.stage()}}, -1);
    }
  }
  return lowered.take();
}

Program lower_step(const Program& program) {
  if (program.forward_only)
    throw InvalidArgument("lower", "a forward-only program has no optimizer step");
  if (program.is_asynchronous()) return program;
  Program lowered = program;
  for (int stage = 0; stage < program.num_stages(); ++stage) {
    lowered.ranks[static_cast<std::size_t>(program.placement[static_cast<std::size_t>(stage)])]
        .emplace_back(Kind::kStep, Stage{stage});
  }
  return lowered;
}

}  // namespace pipewright
