#pragma once

#include <string>
#include <vector>

#include "pipewright/run/record.h"

namespace pipewright {

/// One change of a run and what the simulator says of it, with the costs that the run measured.
struct Suggestion {
  std::string kind;                   // schedule, micro_batches, split, recompute, batch, together
  std::string title;                  // "Schedule zb-h1 instead of 1f1b"
  std::vector<std::string> settings;  // pipeline.schedule="zb-h1", as --set takes them
  std::string caveat;                 // what the figure takes for granted; may be empty
  Plan plan;                          // its step, bubble and peaks are the simulator's
  bool fits = true;                   // within the memory of the run's plan
  double step_seconds = 0;            // the measured step, shortened as the simulated one
  double speedup = 1;                 // samples a second, as a multiple of the run's
};

struct Advice {
  std::string unknown;  // why there is none; empty where there is
  Plan baseline;        // the run as it was, simulated from its own mean times
  double measured_step_seconds = 0;
  std::vector<Suggestion> faster;     // by at least 1 %, fastest first
  std::vector<Suggestion> leaner;     // that take less memory, least first
  std::vector<Suggestion> schedules;  // all of them, the rest of the run unchanged
  bool knows_bytes = false;           // else peaks are not known

  /// The simulated step over the measured one: how much of it the simulator explains.
  double explained() const { return baseline.step_seconds / measured_step_seconds; }
};

/// What to change to go faster. Needs the run's plan and a measured step.
Advice advise(const RunRecord& run);

}  // namespace pipewright
