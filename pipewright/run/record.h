#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipewright/checkpoint/directory.h"
#include "pipewright/cost/profile.h"
#include "pipewright/plan/plan.h"
#include "pipewright/run/facts.h"
#include "pipewright/run/metrics.h"
#include "pipewright/run/timeline_file.h"

namespace pipewright {

/// All that a run's folder holds, but the checkpoints' bytes.
struct RunRecord {
  std::string path;
  RunFacts facts;
  bool is_live = false;  // a process trains it now
  std::string config;    // empty: there is none
  std::optional<Plan> plan;
  std::optional<Profile> profile;
  Metrics metrics;
  std::optional<TimelineFile> measured;
  std::optional<TimelineFile> predicted;
  std::vector<SavedFolder> checkpoints;  // newest first
  std::vector<std::string> notes;        // what is missing, cut or was dropped, in words

  /// Steps done, by metrics and sessions.
  std::int64_t last_step() const;
};

/// Reads a run's folder while it is trained or after. Throws InvalidArgument naming the file and
/// what is wrong: not a run's folder, damaged, of the wrong types, or files that are not of one
/// run.
RunRecord read_run(const std::string& path);

}  // namespace pipewright
