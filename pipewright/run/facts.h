#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Seconds since 1970, of the system's clock.
double unix_now();
std::string format_utc(double unix_seconds);  // 2026-11-15T18:00:27Z, whole seconds

/// How a session ended. A process that was killed leaves kRunning behind.
enum class Outcome : std::uint8_t {
  kRunning,
  kFinished,  // all its steps, or an early stop
  kStopped,   // by Ctrl-C or a signal: saved, and ready to continue
  kFailed,
};
std::string_view outcome_name(Outcome outcome);  // "running", "finished", "stopped", "failed"

/// From a start, or a --resume, to the end of the process.
struct Session {
  double started = 0;              // seconds since 1970, whole ones in the file
  double ended = 0;                // 0: it has not
  std::int64_t first_step = 0;     // steps that were done when it began
  std::int64_t last_step = 0;      // when it ended
  std::int64_t dropped_steps = 0;  // lines of metrics beyond first_step, which it was to do again
  Outcome outcome = Outcome::kRunning;
  std::string message;  // what it failed with, why it stopped

  friend bool operator==(const Session&, const Session&) = default;
};

/// What run.json holds: what one wants to know of a run besides its figures.
struct RunFacts {
  std::string name;
  std::string model;
  std::string host;
  std::string machine;  // processor or GPU, in words
  int cores = 0;        // 0: not known
  int threads_per_rank = 0;
  std::int64_t num_steps = 0;                   // that the run is to have; 0: not known
  std::map<std::string, std::string> versions;  // pipewright, libtorch ...
  std::map<std::string, std::string> strategy;  // in words, for people
  std::vector<Session> sessions;                // oldest first

  friend bool operator==(const RunFacts&, const RunFacts&) = default;
};

/// Host name, cores and the processor's name, of the machine this runs on.
RunFacts facts_of_this_machine();

/// Throws InvalidArgument(`where`) naming the member.
RunFacts parse_facts(std::string_view json, std::string_view where);

/// The text that parse_facts reads back to equal facts, but for fractions of seconds.
std::string to_json(const RunFacts& facts);

}  // namespace pipewright
