#include "pipewright/run/folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/layout.h"
#include "pipewright/run/metrics.h"
#include "pipewright/run/timeline_file.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("run", why); }

void make_run_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw StorageError("run", fmt::format("cannot make the folder '{}': {}; choose another place",
                                          path, error.message()));
}

/// Whether this call made it.
bool make_new_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  if (errno == EEXIST) return false;
  throw StorageError("run",
                     fmt::format("cannot make the folder '{}': {}; choose another place", path,
                                 std::error_code(errno, std::generic_category()).message()));
}

/// 20261115-180027, or with -2, -3 where others began in the same second.
std::string make_timestamped(const std::string& parent, double now) {
  std::string name = format_utc(now);
  std::erase_if(name, [](char c) { return c == '-' || c == ':' || c == 'Z'; });
  name[name.find('T')] = '-';
  std::string path = in_folder(parent, name);
  for (int number = 2; !make_new_folder(path); ++number)
    path = in_folder(parent, fmt::format("{}-{}", name, number));
  return path;
}

void check_name(const std::string& name) {
  if (is_plain_file_name(name)) return;
  refuse(fmt::format("'{}' is no name for a run; use letters, digits, '.', '_' and '-'", name));
}

/// Throws unless `path` is an empty folder.
void check_empty(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    refuse(fmt::format("'{}' is no folder; choose another name", path));
  if (is_there(in_folder(path, kRunFile)))
    refuse(fmt::format(
        "'{}' holds a run already; continue it with --resume, or choose another name", path));
  if (!fs::is_empty(path, error) || error)
    refuse(fmt::format("'{}' is not empty and holds no run; choose another name", path));
}

FileLock lock_run(const std::string& path) {
  return {
      in_folder(path, kLockFile),
      fmt::format("another process trains the run '{}'; wait for its end, or choose another name",
                  path)};
}

}  // namespace

RunFolder::RunFolder(std::string path, FileLock lock, RunFacts facts)
    : path_(std::move(path)), lock_(std::move(lock)), facts_(std::move(facts)) {}

RunFolder RunFolder::create(const std::string& parent, const std::string& name, RunFacts facts,
                            double now) {
  if (!name.empty()) check_name(name);
  make_run_folder(parent);
  std::string path = name.empty() ? make_timestamped(parent, now) : in_folder(parent, name);
  if (!name.empty() && !make_new_folder(path)) check_empty(path);
  FileLock lock = lock_run(path);
  // Of two that found it empty, the slower one finds the other's run.
  if (is_there(in_folder(path, kRunFile))) check_empty(path);
  facts.name = fs::path(path).filename().string();
  facts.sessions.clear();
  RunFolder folder(std::move(path), std::move(lock), std::move(facts));
  make_run_folder(folder.checkpoints());
  folder.write_facts();
  return folder;
}

RunFolder RunFolder::open(const std::string& path) {
  load_facts(path);  // before a lock is made in a folder that is none of ours
  FileLock lock = lock_run(path);
  RunFacts facts = load_facts(path);
  return {path, std::move(lock), std::move(facts)};
}

std::string RunFolder::file(std::string_view name) const { return in_folder(path_, name); }

void RunFolder::write_facts() const { replace_file(file(kRunFile), to_json(facts_)); }

SessionStart RunFolder::begin_session(std::int64_t step, double now) {
  SessionStart start;
  const std::string metrics = file(kMetricsFile);
  if (is_there(metrics)) {
    const std::string text = read_run_file(metrics);
    const MetricsUpTo kept = metrics_up_to(text, metrics, step);
    start = {kept.dropped_steps, kept.cut_bytes};
    if (kept.text.size() != text.size()) replace_file(metrics, kept.text);
  }
  Session session;
  session.started = now;
  session.first_step = step;
  session.last_step = step;
  session.dropped_steps = start.dropped_steps;
  facts_.sessions.push_back(session);
  write_facts();
  return start;
}

void RunFolder::end_session(std::int64_t step, Outcome outcome, const std::string& message,
                            double now) {
  internal_check(!facts_.sessions.empty(), "a session ends that has not begun");
  Session& session = facts_.sessions.back();
  session.ended = now;
  session.last_step = step;
  session.outcome = outcome;
  session.message = message;
  write_facts();
}

void RunFolder::write_config(std::string_view toml) {
  const std::string path = file(kConfigFile);
  if (is_there(path)) {
    const std::string before = read_run_file(path);
    if (before == toml) return;
    const std::int64_t step = facts_.sessions.empty() ? 0 : facts_.sessions.back().first_step;
    replace_file(file(fmt::format("config.until-step-{}.toml", step)), before);
  }
  replace_file(path, toml);
}

void RunFolder::write_plan(const Plan& plan) { replace_file(file(kPlanFile), to_json(plan)); }

void RunFolder::write_profile(const Profile& profile) {
  replace_file(file(kProfileFile), to_json(profile));
}

void RunFolder::write_measured(std::int64_t step, const Timeline& timeline) {
  replace_file(file(kMeasuredFile), to_json(TimelineFile{step, timeline}));
}

void RunFolder::write_predicted(const Timeline& timeline) {
  replace_file(file(kPredictedFile), to_json(TimelineFile{0, timeline}));
}

RunFacts load_facts(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    refuse(fmt::format("there is no folder '{}'; check the path", path));
  if (!fs::is_directory(path, ignored))
    refuse(fmt::format("'{}' is no folder; name the folder of a run", path));
  const std::string run_file = in_folder(path, kRunFile);
  if (!is_there(run_file)) {
    const std::string_view why = fs::is_empty(path, ignored)
                                     ? "it is empty"
                                     : "it has no run.json; name the folder of one run";
    refuse(fmt::format("'{}' is not the folder of a run: {}", path, why));
  }
  return parse_facts(read_run_file(run_file), run_file);
}

std::string newest_run(const std::string& parent) {
  std::string newest;
  double begun = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (!is_there(in_folder(entry.path().string(), kRunFile))) continue;
    const RunFacts facts = load_facts(entry.path().string());
    const double first = facts.sessions.empty() ? 0 : facts.sessions.front().started;
    if (first < begun || (first == begun && entry.path().string() < newest)) continue;
    begun = first;
    newest = entry.path().string();
  }
  return newest;
}

}  // namespace pipewright
