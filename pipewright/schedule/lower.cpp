#include "pipewright/schedule/lower.h"

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/ir/walk.h"

namespace pipewright {
namespace {

bool recomputes(const Program& program, Instruction i, RecomputePass pass) {
  if (i.kind() != Kind::kBackward && i.kind() != Kind::kBackwardInput) return false;
  return pass == RecomputePass::kAll || i.micro_batch() + 1 < program.num_micro_batches;
}

Program without_lists(const Program& program) {
  Program copy;
  copy.schedule = program.schedule;
  copy.num_micro_batches = program.num_micro_batches;
  copy.forward_only = program.forward_only;
  copy.placement = program.placement;
  copy.ranks.resize(program.ranks.size());
  return copy;
}

}  // namespace

Program lower_recompute(const Program& program, RecomputePass pass) {
  Program lowered = without_lists(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Instruction i : program.ranks[rank]) {
      if (recomputes(program, i, pass)) {
        lowered.ranks[rank].emplace_back(Kind::kRecompute, Stage{i.stage()},
                                         MicroBatch{i.micro_batch()});
      }
      lowered.ranks[rank].push_back(i);
    }
  }
  return lowered;
}

Program lower_sends(const Program& program) {
  if (program.is_lowered())
    throw InvalidArgument("lower", "the program has sends and receives already");
  Program lowered = without_lists(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    lowered.ranks[rank].reserve(3 * program.ranks[rank].size());
  }
  const auto transfer = [&](Kind send, Kind recv, Instruction i, int to) {
    const int from_rank = program.placement[static_cast<std::size_t>(i.stage())];
    const int to_rank = program.placement[static_cast<std::size_t>(to)];
    if (from_rank == to_rank) return;
    const MicroBatch m{i.micro_batch()};
    lowered.ranks[static_cast<std::size_t>(from_rank)].emplace_back(send, Stage{i.stage()}, m);
    lowered.ranks[static_cast<std::size_t>(to_rank)].emplace_back(recv, Stage{to}, m);
  };
  Walk walk(program, Sends::kReturnAtOnce, WalkOrder::kRounds);
  while (const auto visit = walk.next()) {
    const Instruction i = visit->instruction;
    lowered.ranks[visit->rank].push_back(i);
    if (i.kind() == Kind::kForward && i.stage() + 1 < program.num_stages()) {
      transfer(Kind::kSendForward, Kind::kRecvForward, i, i.stage() + 1);
    }
    const bool gradient = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardInput;
    if (gradient && i.stage() > 0)
      transfer(Kind::kSendBackward, Kind::kRecvBackward, i, i.stage() - 1);
  }
  if (!walk.finished())
    throw ScheduleError("lower", "the program cannot run to its end; validate() says why");
  return lowered;
}

Program lower_reduce(const Program& program) {
  Program lowered = without_lists(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank];
    for (std::size_t step = 0; step < list.size(); ++step) {
      const Instruction i = list[step];
      lowered.ranks[rank].push_back(i);
      const bool makes_weights = i.kind() == Kind::kBackward || i.kind() == Kind::kBackwardWeight;
      if (!makes_weights || i.micro_batch() + 1 < program.num_micro_batches) continue;
      // The gradient that another rank waits for goes first.
      if (step + 1 < list.size() && list[step + 1].kind() == Kind::kSendBackward) {
        lowered.ranks[rank].push_back(list[++step]);
      }
      lowered.ranks[rank].emplace_back(Kind::kReduce, Stage{i.stage()});
    }
  }
  return lowered;
}

Program lower_step(const Program& program) {
  if (program.forward_only)
    throw InvalidArgument("lower", "a forward-only program has no optimizer step");
  Program lowered = program;
  for (int stage = 0; stage < program.num_stages(); ++stage) {
    lowered.ranks[static_cast<std::size_t>(program.placement[static_cast<std::size_t>(stage)])]
        .emplace_back(Kind::kStep, Stage{stage});
  }
  return lowered;
}

}  // namespace pipewright
