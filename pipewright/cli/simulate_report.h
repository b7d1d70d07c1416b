#pragma once

#include <string>
#include <vector>

#include "pipewright/ir/program.h"
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

struct SimulatedSchedule {
  Program program;
  Simulation simulation;
};

/// Prints one simulated schedule and writes the files that were asked for.
void report_one(const SimulatedSchedule& schedule, const OutputOptions& options);

/// The same for several: one table, or one JSON object.
void report_all(const std::vector<SimulatedSchedule>& schedules, const OutputOptions& options);

}  // namespace pipewright::cli
