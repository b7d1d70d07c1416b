#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipewright/cost/profile.h"

namespace pipewright::bench {

/// The transformer and its batch: torch.distributed.pipelining is given the same.
struct Sizes {
  int layers = 16;
  int dim = 256;
  int heads = 4;
  int seq = 128;
  int vocab = 256;
  int batch = 32;
  std::string work = "transformer";  // or layers of arithmetic instead: "registers", "clock"
  double row_ms = 1;                 // of "clock": what a layer takes for a row
};

/// One way to train it.
struct Cell {
  int ranks = 1;
  int micro_batches = 1;
  std::string schedule = "1f1b";
  std::string way = "threads";  // or "processes"
  double link = 0;              // bytes a second; 0: no time
  bool recompute = false;       // of every stage from its input

  friend bool operator==(const Cell&, const Cell&) = default;
};

/// What it took. Times are seconds of a step.
struct Measured {
  double step = 0;            // the mean, as from a caller's first to its last over their number
  double fastest = 0;         // of the steps
  double busy = 0;            // summed over ranks
  double faults = 0;          // pages touched first: what the allocator gave back before
  double formula = 0;         // the bubble of stages that all take what the mean one took
  double of_stages = 0;       // that of stages that take what each took, in the mean
  double of_times = 0;        // that of instructions that take what each took
  double predicted = 0;       // from layers that were measured alone; 0: of no profile
  std::vector<double> parts;  // of kBreakdownParts, as shares; of threads
  double cores = 0;           // a step of what the cores do where nothing waits; 0: not measured
  double cores_bubble = 0;    // of that
  double slowest_core = 0;    // its time over the mean of all, there
  double evenness = 0;        // of the cores, before and after: the lower (common/evenness.h)
  double stolen = 0;          // by the host, summed over cores (common/stolen.h)
};

/// Steps of a cell, after two that do not count. Processes start this program again.
Measured measure(const Sizes& sizes, const Cell& cell, int steps);

/// What the cores make of the same stages with nothing to wait for, as the schedule would have it.
void measure_cores(const Sizes& sizes, const Cell& cell, int steps, Measured* measured);

/// In one of those processes: runs its rank.
nlohmann::json measure_rank(const Sizes& sizes, const Cell& cell, int steps);

/// The layers for a micro-batch of so many rows.
Profile profile_of(const Sizes& sizes, int rows);

/// What a step of the cell should take by that profile.
double predicted_seconds(const Profile& profile, const Sizes& sizes, const Cell& cell);

}  // namespace pipewright::bench
