#include "pipewright/exec/rank_runner.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {

using Clock = std::chrono::steady_clock;

RankRunner::RankRunner(const SharedModel& shared, int rank, Transport* transport,
                       std::function<void(int)> update)
    : rank_(rank), update_(std::move(update)) {
  for (int stage = 0; stage < shared.layout.num_stages(); ++stage) {
    if (shared.layout.rank_of(stage) != rank) continue;
    stages_.push_back(std::make_unique<StageRunner>(shared, stage, transport));
  }
}

StageRunner& RankRunner::at(int stage) {
  for (auto& runner : stages_) {
    if (runner->stage() == stage) return *runner;
  }
  throw InternalError("exec", fmt::format("stage {} is not on rank {}", stage, rank_));
}

void RankRunner::execute(Instruction i, const Program& program, const StepInput& input) {
  StageRunner& stage = at(i.stage());
  const int m = i.micro_batch();
  switch (i.kind()) {
    case Kind::kForward: {
      const auto cell = static_cast<std::size_t>(i.stage() * program.num_micro_batches + m);
      stage.forward(input, m, recomputed_[cell] != 0, program.forward_only);
      break;
    }
    case Kind::kBackward: stage.backward(m, false); break;
    case Kind::kBackwardInput: stage.backward(m, true); break;
    case Kind::kBackwardWeight: stage.backward_weight(m); break;
    case Kind::kRecompute: stage.recompute(input, m); break;
    case Kind::kSendForward: stage.send_forward(m); break;
    case Kind::kSendBackward: stage.send_backward(m); break;
    case Kind::kRecvForward:
    case Kind::kRecvBackward: break;  // taken by the instruction that uses it
    case Kind::kReduce: break;        // one replica
    case Kind::kStep: update_(i.stage()); break;
  }
}

void RankRunner::run(const Program& program, const StepInput& input, Clock::time_point start,
                     std::vector<Span>* lane) {
  recomputed_.assign(static_cast<std::size_t>(program.num_stages() * program.num_micro_batches), 0);
  const auto& list = program.ranks[static_cast<std::size_t>(rank_)];
  for (const Instruction i : list) {
    if (i.kind() != Kind::kRecompute) continue;
    recomputed_[static_cast<std::size_t>(i.stage() * program.num_micro_batches + i.micro_batch())] =
        1;
  }
  lane->clear();
  lane->reserve(list.size());
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (const Instruction i : list) {
    Span span;
    span.start = seconds();
    try {
      execute(i, program, input);
    } catch (const TransportError&) {
      throw;
    } catch (const std::exception& error) {
      throw StageError("exec", fmt::format("rank {}, stage {}, {} ({}): {}", rank_, i.stage(),
                                           to_text(i), kind_words(i.kind()), error.what()));
    }
    span.end = seconds();
    span.start += at(i.stage()).take_waited();  // an instruction begins when its input is there
    span.kind = i.kind();
    span.stage = i.stage();
    span.micro_batch = i.micro_batch();
    if (!is_recv(i.kind())) lane->push_back(span);
  }
}

void RankRunner::abandon() {
  for (auto& stage : stages_) stage->abandon();
}

}  // namespace pipewright
