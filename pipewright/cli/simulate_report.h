#pragma once

#include <string>
#include <vector>

#include "pipewright/ir/program.h"
#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"

namespace pipewright::cli {

struct OutputOptions {
  bool json = false;
  bool text = false;
  std::string html;
  std::string svg;
  std::string chrome;
  std::string csv;

  bool writes_timelines() const { return !html.empty() || !svg.empty() || !chrome.empty(); }
};

/// Of an asynchronous schedule, times are those of a mini-batch in the steady state.
struct SimulatedSchedule {
  ScheduleSpec spec;  // filled in; of a CSV file its sizes
  Program program;
  Simulation simulation;

  bool asynchronous() const { return simulation.asynchronous.has_value(); }
  double step_time() const;
  double bubble_fraction() const;
  const StepTimes& times() const;          // for the breakdown
  std::vector<double> rank_spans() const;  // by rank
};

/// Prints one simulated schedule and writes the files that were asked for.
void report_one(const SimulatedSchedule& schedule, const OutputOptions& options);

/// The same for several: one table, or one JSON object.
void report_all(const std::vector<SimulatedSchedule>& schedules, const OutputOptions& options);

}  // namespace pipewright::cli
