#include "pipewright/run/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/checkpoint/layout.h"
#include "pipewright/run/folder.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("run", why); }

/// The file's text, where it is there; else a note.
std::optional<std::string> text_of(RunRecord* run, std::string_view name,
                                   std::string_view without) {
  const std::string path = in_folder(run->path, name);
  if (is_there(path)) return read_run_file(path);
  run->notes.push_back(fmt::format("There is no {}: {}.", name, without));
  return std::nullopt;
}

void check_timeline(const RunRecord& run, const std::optional<TimelineFile>& file,
                    std::string_view name) {
  if (!run.plan || !file) return;
  const auto ranks = static_cast<std::size_t>(run.plan->ranks);
  if (file->timeline.ranks.size() != ranks)
    refuse(fmt::format("'{}' has {} of {} ranks and {} of {}: they are not of one run", run.path,
                       kPlanFile, ranks, name, file->timeline.ranks.size()));
  const auto stages = run.plan->sizes.size();
  for (const auto& rank : file->timeline.ranks) {
    for (const Span& span : rank) {
      if (static_cast<std::size_t>(span.stage) < stages) continue;
      refuse(fmt::format("'{}' has {} of {} stages, and stage {} in {}: they are not of one run",
                         run.path, kPlanFile, stages, span.stage, name));
    }
  }
}

void check_together(const RunRecord& run) {
  check_timeline(run, run.measured, kMeasuredFile);
  check_timeline(run, run.predicted, kPredictedFile);
  if (!run.plan || !run.profile) return;
  const auto& sizes = run.plan->sizes;
  const auto layers = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (layers != static_cast<std::int64_t>(run.profile->layers.size()))
    refuse(fmt::format("'{}' has {} of {} layers and {} of {}: they are not of one run", run.path,
                       kPlanFile, layers, kProfileFile, run.profile->layers.size()));
}

void note_sessions(RunRecord* run) {
  for (const Session& session : run->facts.sessions) {
    if (session.dropped_steps == 0) continue;
    const bool one = session.dropped_steps == 1;
    run->notes.push_back(
        fmt::format("The session of {} continued from step {}: {} step{} beyond it, done before, "
                    "{} dropped and done again.",
                    format_utc(session.started), session.first_step, session.dropped_steps,
                    one ? "" : "s", one ? "was" : "were"));
  }
  const auto& sessions = run->facts.sessions;
  if (sessions.empty() || sessions.back().outcome != Outcome::kRunning) return;
  run->notes.emplace_back(run->is_live
                              ? "The run goes on: these are its figures so far."
                              : "The last session has no end: its process was killed. Continue it "
                                "with --resume.");
}

void read_metrics(RunRecord* run) {
  const auto text = text_of(run, kMetricsFile, "no step was logged");
  if (!text) return;
  run->metrics = parse_metrics(*text, in_folder(run->path, kMetricsFile));
  if (run->metrics.cut_bytes > 0 && !run->is_live)
    run->notes.push_back(fmt::format("The last line of {} is cut short ({}) and not counted.",
                                     kMetricsFile,
                                     format_bytes(static_cast<double>(run->metrics.cut_bytes))));
  if (run->metrics.steps.empty())
    run->notes.push_back(fmt::format("{} has no step.", kMetricsFile));
}

}  // namespace

std::int64_t RunRecord::last_step() const {
  std::int64_t last = metrics.steps.empty() ? 0 : metrics.steps.back().step;
  for (const Session& session : facts.sessions) last = std::max(last, session.first_step);
  if (!facts.sessions.empty()) last = std::max(last, facts.sessions.back().last_step);
  return last;
}

RunRecord read_run(const std::string& path) {
  RunRecord run;
  run.path = path;
  run.is_live = FileLock::is_held(in_folder(path, kLockFile));
  run.facts = load_facts(path);
  note_sessions(&run);
  read_metrics(&run);
  if (is_there(in_folder(path, kConfigFile)))
    run.config = read_run_file(in_folder(path, kConfigFile));
  const auto where = [&](std::string_view name) { return in_folder(path, name); };
  if (const auto text = text_of(&run, kPlanFile, "nothing is known of schedule and predictions"))
    run.plan = parse_plan(*text, where(kPlanFile));
  if (const auto text =
          text_of(&run, kProfileFile, "layers cannot be moved between stages in thought"))
    run.profile = parse_profile(*text, where(kProfileFile));
  if (const auto text = text_of(&run, kMeasuredFile, "no step was measured"))
    run.measured = parse_timeline(*text, where(kMeasuredFile));
  if (const auto text =
          text_of(&run, kPredictedFile, "the measured step has nothing to be held against"))
    run.predicted = parse_timeline(*text, where(kPredictedFile));
  check_together(run);
  run.checkpoints = list_checkpoints(in_folder(path, kCheckpointsFolder)).newest_first;
  return run;
}

}  // namespace pipewright
