#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/ir/program.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// Interprets one rank's list of a lowered Program. It decides nothing: what comes next is what the
/// list says.
class RankRunner {
 public:
  /// `update(stage)` is called for STEP.
  RankRunner(const SharedModel& shared, int rank, Transport* transport,
             std::function<void(int)> update);

  /// Throws StageError naming rank, stage and instruction where something of the user's threw; a
  /// TransportError passes as it is. Records every instruction with seconds since `start`.
  void run(const Program& program, const StepInput& input,
           std::chrono::steady_clock::time_point start, std::vector<Span>* lane);

  std::vector<std::unique_ptr<StageRunner>>& stages() { return stages_; }
  void abandon();

 private:
  void execute(Instruction i, const Program& program, const StepInput& input);
  StageRunner& at(int stage);

  int rank_;
  std::vector<std::unique_ptr<StageRunner>> stages_;
  std::function<void(int)> update_;
  std::vector<char> recomputed_;  // by stage and micro-batch of the program in hand
};

}  // namespace pipewright
