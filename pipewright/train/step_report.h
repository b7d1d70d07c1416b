#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// What a process, which is one rank, tells the others of its pipeline about a step.
struct StepReport {
  double loss_sum = 0;                   // 0 but where the last stage is
  double weight = 0;                     // likewise
  double stops = 0;                      // processes that ask to stop
  double started = 0;                    // seconds on the clock of the day
  std::vector<std::int64_t> rank_peaks;  // by rank, 0 for those of others
  std::vector<std::int64_t> stage_peaks;
  std::vector<std::int64_t> versions;  // by rank, of asynchronous schedules
  std::vector<Span> spans;
  std::vector<MemoryPoint> memory;
};

/// As numbers, and back. A report made by pack() is always readable.
std::vector<double> pack(const StepReport& report);
StepReport unpack(const std::vector<double>& numbers);

/// The reports of all ranks, by rank, as one: the loss of the last stage, every rank's peaks, and
/// their spans on one time axis, which begins where the first of them started. Clocks of several
/// machines differ by what their synchronisation leaves.
StepReport join_reports(std::vector<StepReport> reports, Timeline* timeline);

}  // namespace pipewright
