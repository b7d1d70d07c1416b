#include "pipewright/run/facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"

namespace pipewright {
namespace {

constexpr std::string_view kFormat = "pipewright-run";
constexpr int kVersion = 1;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 60;
constexpr std::array<std::string_view, 4> kOutcomes = {"running", "finished", "stopped", "failed"};

/// Reads what format_utc writes. Throws InvalidArgument(`where`).
double parse_utc(const std::string& text, std::string_view where) {
  constexpr std::string_view kShape = "dddd-dd-ddTdd:dd:ddZ";
  const auto fits = [](char c, char shape) {
    return shape == 'd' ? c >= '0' && c <= '9' : c == shape;
  };
  const auto number = [&](std::size_t at, std::size_t length) {
    return std::stoi(text.substr(at, length));
  };
  using namespace std::chrono;
  if (text.size() == kShape.size() && std::equal(text.begin(), text.end(), kShape.begin(), fits)) {
    const year_month_day date{year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                              day(static_cast<unsigned>(number(8, 2)))};
    const int hour = number(11, 2);
    const int minute = number(14, 2);
    const int second = number(17, 2);
    if (date.ok() && hour < 24 && minute < 60 && second < 60) {
      const auto days = sys_days(date).time_since_epoch();
      return static_cast<double>((days + hours(hour) + minutes(minute) + seconds(second)).count());
    }
  }
  throw InvalidArgument(where, fmt::format("'{}' is no time such as 2026-11-15T18:00:27Z", text));
}

Outcome parse_outcome(const std::string& name, std::string_view where) {
  const auto found = std::find(kOutcomes.begin(), kOutcomes.end(), name);
  if (found != kOutcomes.end()) return static_cast<Outcome>(found - kOutcomes.begin());
  throw InvalidArgument(
      where, fmt::format("outcome '{}' is none of running, finished, stopped, failed", name));
}

Session parse_session(const nlohmann::json& value, std::string_view where, std::size_t number) {
  const JsonObject object(value, where, fmt::format("sessions[{}]", number));
  object.refuse_unknown(
      {"started", "ended", "first_step", "last_step", "dropped_steps", "outcome", "message"});
  Session session;
  session.started = parse_utc(object.string("started"), where);
  if (object.has("ended")) session.ended = parse_utc(object.string("ended"), where);
  session.first_step = object.integer("first_step", 0, kMostSteps);
  session.last_step = object.integer_or("last_step", 0, kMostSteps, session.first_step);
  session.dropped_steps = object.integer_or("dropped_steps", 0, kMostSteps, 0);
  session.outcome = parse_outcome(object.string("outcome"), where);
  session.message = object.string_or("message", "");
  return session;
}

nlohmann::ordered_json session_json(const Session& session) {
  nlohmann::ordered_json out = {{"started", format_utc(session.started)}};
  if (session.ended > 0) out["ended"] = format_utc(session.ended);
  out["first_step"] = session.first_step;
  if (session.ended > 0) out["last_step"] = session.last_step;
  if (session.dropped_steps > 0) out["dropped_steps"] = session.dropped_steps;
  out["outcome"] = outcome_name(session.outcome);
  if (!session.message.empty()) out["message"] = session.message;
  return out;
}

std::map<std::string, std::string> parse_words(const nlohmann::json& root, const char* name,
                                               std::string_view where) {
  std::map<std::string, std::string> words;
  if (!root.contains(name)) return words;
  const JsonObject object(root.at(name), where, name);
  for (const auto& [key, ignored] : root.at(name).items()) words[key] = object.string(key);
  return words;
}

/// The first "model name" of /proc/cpuinfo; empty where there is none.
std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string format_utc(double unix_seconds) {
  using namespace std::chrono;
  const auto whole = seconds(static_cast<std::int64_t>(std::floor(unix_seconds)));
  const auto day_count = floor<days>(whole);
  const year_month_day date{sys_days(day_count)};
  const auto of_day = (whole - day_count).count();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     of_day / 3600, of_day / 60 % 60, of_day % 60);
}

std::string_view outcome_name(Outcome outcome) {
  return kOutcomes[static_cast<std::size_t>(outcome)];
}

RunFacts facts_of_this_machine() {
  RunFacts facts;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) facts.host = host.data();
  facts.machine = processor_name();
  facts.cores = static_cast<int>(std::thread::hardware_concurrency());
  return facts;
}

RunFacts parse_facts(std::string_view json, std::string_view where) {
  const nlohmann::json root = parse_json(json, where);
  const JsonObject object(root, where, "run");
  if (object.string_or("format", "") != kFormat)
    throw InvalidArgument(where, fmt::format("this is of no run: format is not '{}'", kFormat));
  if (const auto version = object.integer("version", 0, INT32_MAX); version != kVersion) {
    throw InvalidArgument(
        where, fmt::format("the run is of version {}, this program reads {}", version, kVersion));
  }
  object.refuse_unknown({"format", "version", "name", "model", "host", "machine", "cores",
                         "threads_per_rank", "num_steps", "versions", "strategy", "sessions"});
  RunFacts facts;
  facts.name = object.string("name");
  facts.model = object.string_or("model", "");
  facts.host = object.string_or("host", "");
  facts.machine = object.string_or("machine", "");
  facts.cores = static_cast<int>(object.integer_or("cores", 0, 1 << 20, 0));
  facts.threads_per_rank = static_cast<int>(object.integer_or("threads_per_rank", 0, 1 << 20, 0));
  facts.num_steps = object.integer_or("num_steps", 0, kMostSteps, 0);
  facts.versions = parse_words(root, "versions", where);
  facts.strategy = parse_words(root, "strategy", where);
  for (const auto& session : object.array("sessions"))
    facts.sessions.push_back(parse_session(session, where, facts.sessions.size()));
  return facts;
}

std::string to_json(const RunFacts& facts) {
  auto sessions = nlohmann::ordered_json::array();
  for (const Session& session : facts.sessions) sessions.push_back(session_json(session));
  const nlohmann::ordered_json root = {{"format", kFormat},
                                       {"version", kVersion},
                                       {"name", facts.name},
                                       {"model", facts.model},
                                       {"host", facts.host},
                                       {"machine", facts.machine},
                                       {"cores", facts.cores},
                                       {"threads_per_rank", facts.threads_per_rank},
                                       {"num_steps", facts.num_steps},
                                       {"versions", facts.versions},
                                       {"strategy", facts.strategy},
                                       {"sessions", sessions}};
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace pipewright
