#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pipewright/cost/profile.h"
#include "pipewright/plan/plan.h"
#include "pipewright/run/facts.h"
#include "pipewright/run/files.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

// A run's folder:
//
//     runs/NAME/run.json                 who, where, when, how it ended; a session a start
//               config.toml              as the run was started with
//               plan.json                how it is trained, and what was predicted
//               profile.json             the layers' measured costs
//               metrics.jsonl            a line a step, a line a validation
//               timeline_measured.json   the last step that was measured
//               timeline_predicted.json  the same step as it was planned
//               checkpoints/             see checkpoint/layout.h
//               tb/                      event files for TensorBoard
//               lock                     held by the process that trains
//
// run.json is always there, everything else may be missing.

inline constexpr std::string_view kRunFile = "run.json";
inline constexpr std::string_view kConfigFile = "config.toml";
inline constexpr std::string_view kPlanFile = "plan.json";
inline constexpr std::string_view kProfileFile = "profile.json";
inline constexpr std::string_view kMetricsFile = "metrics.jsonl";
inline constexpr std::string_view kMeasuredFile = "timeline_measured.json";
inline constexpr std::string_view kPredictedFile = "timeline_predicted.json";
inline constexpr std::string_view kCheckpointsFolder = "checkpoints";
inline constexpr std::string_view kTensorboardFolder = "tb";
inline constexpr std::string_view kLockFile = "lock";

/// What the start of a session did to metrics.jsonl, to be told to the user.
struct SessionStart {
  std::int64_t dropped_steps = 0;  // lines of steps beyond the one it continues from
  std::int64_t cut_bytes = 0;      // half a line that a killed writer left
};

/// The folder of a run that this process trains; of several processes one has it. All throw
/// StorageError where the disk refuses.
class RunFolder {
 public:
  /// A new run below `parent`, which is made where absent. `name`: empty for one made of the time,
  /// such as 20261115-180027. Throws InvalidArgument for a name that is no plain one, and where a
  /// folder of that name has anything in it.
  static RunFolder create(const std::string& parent, const std::string& name, RunFacts facts,
                          double now = unix_now());

  /// A run to be continued. Throws InvalidArgument where `path` is none, or another process trains
  /// it.
  static RunFolder open(const std::string& path);

  const std::string& path() const { return path_; }
  const RunFacts& facts() const { return facts_; }
  std::string file(std::string_view name) const;
  std::string checkpoints() const { return file(kCheckpointsFolder); }
  std::string tensorboard() const { return file(kTensorboardFolder); }

  /// `step`: steps done, 0 for a new run. What metrics.jsonl has beyond it is dropped: it is about
  /// to be done again.
  SessionStart begin_session(std::int64_t step, double now = unix_now());
  void end_session(std::int64_t step, Outcome outcome, const std::string& message = "",
                   double now = unix_now());

  /// A config that differs from the one there keeps that as config.until-step-N.toml.
  void write_config(std::string_view toml);
  void write_plan(const Plan& plan);
  void write_profile(const Profile& profile);
  void write_measured(std::int64_t step, const Timeline& timeline);
  void write_predicted(const Timeline& timeline);

 private:
  RunFolder(std::string path, FileLock lock, RunFacts facts);
  void write_facts() const;

  std::string path_;
  FileLock lock_;
  RunFacts facts_;
};

/// What a run's folder says of it. Throws InvalidArgument where `path` is not the folder of a run.
RunFacts load_facts(const std::string& path);

/// The newest run below `parent` by the start of its first session, for --resume without a name;
/// empty where there is none. Folders that are no runs are passed over.
std::string newest_run(const std::string& parent);

}  // namespace pipewright
