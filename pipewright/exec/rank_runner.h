#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/exec/step_clock.h"
#include "pipewright/exec/weight_versions.h"
#include "pipewright/ir/program.h"
#include "pipewright/memory/meter.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// What a rank gets from those who run it.
struct RankOptions {
  int rank = 0;
  Transport* transport = nullptr;
  /// Does STEP of a stage, of an asynchronous schedule the one that makes a version of its weights
  /// (else -1); returns how long it waited for other ranks, in seconds.
  std::function<double(int stage, int version)> update;
  /// Where there are replicas: the stage's last backward begins, and REDUCE.
  std::function<void(int stage)> start_reduce;
  std::function<void(int stage)> reduce;
  /// Of an open Program, whose backwards may be in the next one: its forwards are recomputed.
  bool recomputes_later = false;
  /// What a user may change where memory runs out.
  std::string memory_advice;
  std::chrono::duration<double> deadline{300};
  /// See StagePlace; filled by whoever makes the ranks, before they run.
  const std::vector<int>* all_slots = nullptr;
};

/// The mini-batches that a Program's micro-batches are of: one, or, of an asynchronous schedule,
/// those under way and the one that it brings.
class ProgramInput {
 public:
  ProgramInput() = default;
  explicit ProgramInput(const StepInput& input) { parts_.push_back({0, {&input, no_owner}}); }

  /// Its first micro-batch is so many-th of the Program; negative where some have been through.
  void add(int first, std::shared_ptr<const StepInput> input) {
    parts_.push_back({first, std::move(input)});
  }

  const StepInput& of(int micro_batch) const { return *part(micro_batch).input; }
  int number(int micro_batch) const;

 private:
  struct Part {
    int first;
    std::shared_ptr<const StepInput> input;
  };
  static void no_owner(const StepInput* /*input*/) {}
  const Part& part(int micro_batch) const;

  std::vector<Part> parts_;  // in order
};

/// What a rank has measured of a step.
struct RankTrace {
  std::vector<Span> spans;
  std::vector<MemoryPoint> memory;
};

/// Interprets one rank's list of a lowered Program. It decides nothing: what comes next is what the
/// list says, but for receives, which are asked for as early as is of use.
class RankRunner {
 public:
  RankRunner(const SharedModel& shared, RankOptions options);

  /// Returns when all is done, on GPUs too. Throws StageError naming rank, stage and instruction
  /// where something of the user's threw, OutOfMemory where there was none left; a TransportError
  /// passes as it is. `start`: when the step's time began.
  void run(const Program& program, const ProgramInput& input,
           std::chrono::steady_clock::time_point start, RankTrace* trace);

  /// From now on Programs have versions: of these parameters of a stage of this rank. Version 0 is
  /// what they are now.
  void start_versions(int stage, Tensors parameters);
  /// The most versions of a stage that were held at a time.
  int most_versions(int stage) const { return most_versions_.at(stage); }

  int rank() const { return options_.rank; }
  std::vector<std::unique_ptr<StageRunner>>& stages() { return stages_; }
  /// The rank's stream on each of its devices.
  const std::vector<std::unique_ptr<DeviceStream>>& streams() const { return streams_; }

  /// The slot that pays for all stages of the rank; theirs are its children.
  int memory_slot() const { return slot_.number(); }
  void abandon();

 private:
  /// An instruction of the list, with what the list does not say of it itself.
  struct Step {
    Instruction instruction;
    int version = -1;         // that it uses or makes
    int needed = -1;          // the oldest version that the stage needs afterwards
    bool recomputed = false;  // a forward whose activations R makes again
    bool completes = false;   // a backward that makes the gradients complete, for REDUCE
  };
  void prepare(const Program& program);
  void prepare_versions(const Program& program);
  void post_receives_early(const Program& program);
  void execute(const Step& step, const Program& program, const ProgramInput& input);
  void execute_or_explain(const Step& step, const Program& program, const ProgramInput& input);
  void take_version(const Step& step);
  [[noreturn]] void explain(Instruction i, const char* what, bool out_of_memory) const;
  void warm_up_streams();
  const DeviceStream& stream_on(torch::Device device);
  StageRunner& at(int stage) const;

  RankOptions options_;
  MemorySlot slot_;
  std::vector<std::unique_ptr<MemorySlot>> stage_slots_;
  std::vector<std::unique_ptr<DeviceStream>> streams_;
  std::vector<std::unique_ptr<StageRunner>> stages_;
  std::vector<StageRunner*> by_stage_;      // null: another rank's
  std::vector<Step> steps_;                 // of the program in hand
  std::vector<char> recomputed_;            // by stage and micro-batch of it
  std::map<int, WeightVersions> versions_;  // by stage
  std::map<int, int> most_versions_;
  std::map<int, int> copied_;  // by stage: the version that copies in 16 bits are of
  StepClock clock_;
  bool warm_ = false;
  double update_waited_ = 0;
};

}  // namespace pipewright
