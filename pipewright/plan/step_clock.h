#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// How often a stage's cost (its forward time) an instruction takes: backward is twice forward, its
/// halves once each.
std::int64_t cost_factor(Kind kind);

/// The step time of one Program for many stage costs, where links cost nothing. What an instruction
/// waits for does not depend on costs, so the Program is walked once; after that a step time is one
/// pass of a maximum and a sum an instruction, some thirty times faster than simulate(), which it
/// agrees with. Costs are whole numbers: equal times compare equal.
class StepClock {
 public:
  /// The Program is compute-only and can run.
  explicit StepClock(const Program& program);

  /// Never falls where a cost rises: a longest path over costs that are not negative.
  std::int64_t step_time(std::span<const std::int64_t> stage_costs);

  std::size_t num_instructions() const { return steps_.size(); }

 private:
  /// Indices into ends_, where 0 is the start of the step.
  struct Step {
    std::uint32_t previous;  // on the same rank
    std::uint32_t input;     // from the neighbouring stage
    std::uint32_t stage;
    std::uint32_t factor;
  };

  std::vector<Step> steps_;
  std::vector<std::int64_t> ends_;
};

}  // namespace pipewright
