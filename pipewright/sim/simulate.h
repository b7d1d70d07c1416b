#pragma once

#include <vector>

#include "pipewright/cost/stage_cost.h"
#include "pipewright/ir/program.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

struct SimulateOptions {
  bool record_timeline = true;  // off: only the figures, for very large Programs and for searches
};

/// What a Program costs. All times in the unit of the costs.
struct Simulation {
  StepTimes times{0};
  std::vector<double>
      peak_in_flight;  // by rank: chunk activations held between F and B (or I), / chunks
  std::vector<double> peak_bytes;  // by rank
  Timeline timeline;               // empty unless recorded

  double step_time() const { return times.step_time(); }
};

/// Runs a valid Program, lowered or not, against costs: each instruction starts when its rank is
/// free and its input is there; a receive delays the instruction that uses it, not the rank. Linear
/// in the instructions. Throws InvalidArgument where the costs do not fit the Program,
/// ScheduleError where the Program cannot run.
Simulation simulate(const Program& program, const StepCosts& costs, SimulateOptions options = {});

}  // namespace pipewright
