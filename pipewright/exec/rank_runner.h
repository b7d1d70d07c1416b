#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/exec/step_clock.h"
#include "pipewright/ir/program.h"
#include "pipewright/memory/meter.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// What a rank gets from those who run it.
struct RankOptions {
  int rank = 0;
  Transport* transport = nullptr;
  /// Does STEP of a stage; returns how long it waited for other ranks, in seconds.
  std::function<double(int stage)> update;
  /// Where there are replicas: the stage's last backward begins, and REDUCE.
  std::function<void(int stage)> start_reduce;
  std::function<void(int stage)> reduce;
  /// What a user may change where memory runs out.
  std::string memory_advice;
  std::chrono::duration<double> deadline{300};
  /// See StagePlace; filled by whoever makes the ranks, before they run.
  const std::vector<int>* all_slots = nullptr;
};

/// What a rank has measured of a step.
struct RankTrace {
  std::vector<Span> spans;
  std::vector<MemoryPoint> memory;
};

/// Interprets one rank's list of a lowered Program. It decides nothing: what comes next is what the
/// list says.
class RankRunner {
 public:
  RankRunner(const SharedModel& shared, RankOptions options);

  /// Returns when all is done, on GPUs too. Throws StageError naming rank, stage and instruction
  /// where something of the user's threw, OutOfMemory where there was none left; a TransportError
  /// passes as it is. `start`: when the step's time began.
  void run(const Program& program, const StepInput& input,
           std::chrono::steady_clock::time_point start, RankTrace* trace);

  int rank() const { return options_.rank; }
  std::vector<std::unique_ptr<StageRunner>>& stages() { return stages_; }
  /// The rank's stream on each of its devices.
  const std::vector<std::unique_ptr<DeviceStream>>& streams() const { return streams_; }

  /// The slot that pays for all stages of the rank; theirs are its children.
  int memory_slot() const { return slot_.number(); }
  void abandon();

 private:
  void execute(Instruction i, const Program& program, const StepInput& input);
  void execute_or_explain(Instruction i, const Program& program, const StepInput& input);
  [[noreturn]] void explain(Instruction i, const char* what, bool out_of_memory) const;
  void find_recomputed(const Program& program);
  void warm_up_streams();
  const DeviceStream& stream_on(torch::Device device);
  StageRunner& at(int stage) const;

  RankOptions options_;
  MemorySlot slot_;
  std::vector<std::unique_ptr<MemorySlot>> stage_slots_;
  std::vector<std::unique_ptr<DeviceStream>> streams_;
  std::vector<std::unique_ptr<StageRunner>> stages_;
  std::vector<StageRunner*> by_stage_;  // null: another rank's
  bool reduces_ = false;                // the program has REDUCE
  std::vector<char> recomputed_;        // by stage and micro-batch of the program in hand
  StepClock clock_;
  bool warm_ = false;
  double update_waited_ = 0;
};

}  // namespace pipewright
