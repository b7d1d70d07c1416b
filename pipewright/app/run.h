#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/config/config.h"
#include "pipewright/plan/plan.h"
#include "pipewright/run/metrics.h"

namespace pipewright::app {

/// What a run tells while it goes on, each from the thread that called train(); any may be empty.
struct Hooks {
  /// Before the first step: steps that were done before, and those that there are to be in all.
  std::function<void(std::int64_t done, std::int64_t all)> begin = {};
  std::function<void(const StepMetrics&)> step = {};
  std::function<void(const std::string&)> note = {};
  /// Asked after every step: someone wants it to end, on Ctrl-C say. It then saves, and ends.
  std::function<bool()> interrupted = {};
};

/// How a run ended.
struct Ending {
  std::int64_t steps = 0;
  std::optional<double> final_loss;  // nothing: all steps had been done before
  double samples_per_second = 0;
  double step_seconds = 0;                    // median of this session's
  double bubble_fraction = 0;                 // of the last step
  double predicted_bubble_fraction = 0;       // of its Program with the times it measured
  std::vector<std::int64_t> peak_bytes;       // by rank: the most of any step
  std::optional<std::string> weights_sha256;  // see weights_hash.h; in the first process alone
  std::string run_dir;
  bool stopped = false;  // it was interrupted
};

/// Trains as a config says, in a folder of the run's own: config, metrics, timeline, checkpoints.
/// Of several processes all call it, and the first writes the folder. `resume`: goes on from its
/// last checkpoint. `plan`: takes the place of the config's pipeline and recompute. Throws
/// InvalidArgument for what cannot be done, config::KeyError among it, StorageError where the disk
/// refuses.
Ending train(const config::Config& config, const std::string& run_dir, bool resume,
             const Hooks& hooks, const std::optional<Plan>& plan = std::nullopt);

}  // namespace pipewright::app
