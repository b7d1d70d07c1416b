#include "pipewright/plan/step_clock.h"

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/ir/walk.h"

namespace pipewright {

std::int64_t cost_factor(Kind kind) {
  internal_check(kind == Kind::kForward || is_backward(kind), "a schedule writes F, B, I and W");
  return kind == Kind::kBackward ? 2 : 1;
}

StepClock::StepClock(const Program& program) {
  const auto micro_batches = static_cast<std::size_t>(program.num_micro_batches);
  const std::size_t cells = program.placement.size() * micro_batches;
  std::vector<std::uint32_t> forward_end(cells);
  std::vector<std::uint32_t> gradient_end(cells);
  std::vector<std::uint32_t> rank_end(program.ranks.size());
  steps_.reserve(program.num_instructions());

  Walk walk(program, Sends::kReturnAtOnce, WalkOrder::kRounds);
  while (const auto visit = walk.next()) {
    const Instruction at = visit->instruction;
    const auto stage = static_cast<std::size_t>(at.stage());
    const std::size_t cell = stage * micro_batches + static_cast<std::size_t>(at.micro_batch());
    const bool gradient = at.kind() == Kind::kBackward || at.kind() == Kind::kBackwardInput;
    std::uint32_t input = 0;
    if (at.kind() == Kind::kForward && stage > 0) input = forward_end[cell - micro_batches];
    if (gradient && stage + 1 < program.placement.size())
      input = gradient_end[cell + micro_batches];

    std::uint32_t& previous = rank_end[visit->rank];
    steps_.push_back({previous, input, static_cast<std::uint32_t>(stage),
                      static_cast<std::uint32_t>(cost_factor(at.kind()))});
    previous = static_cast<std::uint32_t>(steps_.size());
    if (at.kind() == Kind::kForward) forward_end[cell] = previous;
    if (gradient) gradient_end[cell] = previous;
  }
  internal_check(walk.finished(), "a schedule runs to its end");
  ends_.resize(steps_.size() + 1);
}

std::int64_t StepClock::step_time(std::span<const std::int64_t> stage_costs) {
  std::int64_t last = 0;
  std::int64_t* end = ends_.data();
  for (const Step& step : steps_) {
    const std::int64_t start = std::max(ends_[step.previous], ends_[step.input]);
    *++end = start + step.factor * stage_costs[step.stage];
    last = std::max(last, *end);
  }
  return last;
}

}  // namespace pipewright
