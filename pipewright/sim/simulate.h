#pragma once

#include <optional>
#include <vector>

#include "pipewright/cost/stage_cost.h"
#include "pipewright/ir/program.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

struct SimulateOptions {
  bool record_timeline = true;  // off: only the figures, for very large Programs and for searches
  /// Where given, every instruction that it has takes as long as it did there: of a step that was
  /// measured, what times alone explain of its bubble, and what is left.
  const Timeline* as_in = nullptr;
};

/// What only asynchronous Programs have.
struct AsynchronousFigures {
  /// Neither warm-up nor drain (see SteadyWindow); those of the whole where it is too short for
  /// that.
  StepTimes steady{0};
  int micro_batches = 0;  // in it
  bool is_steady = false;

  std::vector<int> versions;  // by rank: of its weights, held at a time, the newest included
  std::vector<double> version_bytes;  // by rank: the most of those beside the newest
  std::vector<int> delay;             // by rank: see HeldVersions::delay

  /// Of a mini-batch of so many micro-batches.
  double mini_batch_time(int count) const {
    return micro_batches > 0 ? steady.step_time() * count / micro_batches : 0;
  }
};

/// What a Program costs. All times in the unit of the costs.
struct Simulation {
  StepTimes times{0};  // of the whole Program
  std::vector<double>
      peak_in_flight;  // by rank: chunk activations held between F and B (or I), / chunks
  std::vector<double> peak_bytes;  // by rank
  std::optional<AsynchronousFigures> asynchronous;
  Timeline timeline;  // empty unless recorded

  double step_time() const { return times.step_time(); }
};

/// Runs a valid Program, lowered or not, against costs: each instruction starts when its rank is
/// free and its input is there; a receive delays the instruction that uses it, not the rank. What a
/// Program goes on from is there from the start. Linear
/// in the instructions. Throws InvalidArgument where the costs do not fit the Program,
/// ScheduleError where the Program cannot run.
Simulation simulate(const Program& program, const StepCosts& costs, SimulateOptions options = {});

}  // namespace pipewright
