#include "pipewright/run/timeline_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"
#include "pipewright/trace/drawing.h"

namespace pipewright {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kFormat = "pipewright-timeline";
constexpr int kVersion = 1;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 60;
constexpr int kMostIndex = 1 << 30;

/// Clocks of two devices differ by a little: so much of a step may spans overlap.
constexpr double kMostOverlap = 1e-3;

// A rank is columns, which a script reads into arrays as they are: kind[i], stage[i] ...

ordered_json rank_json(const std::vector<Span>& all) {
  ordered_json rank = {
      {"kind", ordered_json::array()},        {"stage", ordered_json::array()},
      {"micro_batch", ordered_json::array()}, {"start", ordered_json::array()},
      {"end", ordered_json::array()},         {"link_wait", ordered_json::array()}};
  // Of asynchronous schedules alone.
  const bool versions =
      std::any_of(all.begin(), all.end(), [](const Span& span) { return span.version >= 0; });
  for (const Span& span : all) {
    if (!drawable(span)) continue;
    rank["kind"].push_back(kind_name(span.kind));
    rank["stage"].push_back(span.stage);
    rank["micro_batch"].push_back(span.micro_batch);
    rank["start"].push_back(span.start);
    rank["end"].push_back(span.end);
    rank["link_wait"].push_back(finite(span.link_wait));
    if (versions) rank["version"].push_back(span.version);
  }
  return rank;
}

ordered_json memory_json(const std::vector<MemoryPoint>& points) {
  ordered_json memory = {{"time", ordered_json::array()}, {"bytes", ordered_json::array()}};
  for (const MemoryPoint& point : points) {
    memory["time"].push_back(finite(point.time));
    memory["bytes"].push_back(finite(point.bytes));
  }
  return memory;
}

/// Finite numbers, of either sign: times count from the step's own beginning.
std::vector<double> numbers(const JsonObject& object, std::string_view name,
                            const std::string& path, std::string_view where) {
  std::vector<double> values;
  for (const json& value : object.array(name)) {
    if (!value.is_number())
      throw InvalidArgument(where, fmt::format("{}.{}[{}] is {}, not a number", path, name,
                                               values.size(), value.type_name()));
    values.push_back(value.get<double>());
  }
  return values;
}

void check_length(std::size_t length, std::size_t wanted, std::string_view name,
                  const std::string& path, std::string_view where) {
  if (length == wanted) return;
  throw InvalidArgument(
      where, fmt::format("{}.{} has {} entries, not {} as the others", path, name, length, wanted));
}

std::vector<Span> parse_rank(const json& value, const std::string& path, std::string_view where) {
  const JsonObject object(value, where, path);
  object.refuse_unknown({"kind", "stage", "micro_batch", "start", "end", "link_wait", "version"});
  const auto kinds = object.strings("kind");
  const auto stages = object.integers("stage", 0, kMostIndex);
  const auto batches = object.integers("micro_batch", -1, kMostIndex);
  const auto starts = numbers(object, "start", path, where);
  const auto ends = numbers(object, "end", path, where);
  const auto waits = numbers(object, "link_wait", path, where);
  check_length(stages.size(), kinds.size(), "stage", path, where);
  check_length(batches.size(), kinds.size(), "micro_batch", path, where);
  check_length(starts.size(), kinds.size(), "start", path, where);
  check_length(ends.size(), kinds.size(), "end", path, where);
  check_length(waits.size(), kinds.size(), "link_wait", path, where);
  // Of asynchronous schedules alone.
  const auto versions = object.has("version") ? object.integers("version", -1, kMostIndex)
                                              : std::vector<std::int64_t>();
  if (!versions.empty()) check_length(versions.size(), kinds.size(), "version", path, where);
  std::vector<Span> spans;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto kind = parse_kind(kinds[i]);
    if (!kind)
      throw InvalidArgument(where, fmt::format("{}.kind[{}] '{}' is no instruction", path, i,
                                               kinds[i].substr(0, 40)));
    spans.push_back({starts[i], ends[i], waits[i], static_cast<int>(stages[i]),
                     static_cast<int>(batches[i]), *kind});
    if (!versions.empty()) spans.back().version = static_cast<int>(versions[i]);
    if (!drawable(spans.back()))
      throw InvalidArgument(
          where, fmt::format("{}: span {} is from {} to {}", path, i, starts[i], ends[i]));
  }
  return spans;
}

std::vector<MemoryPoint> parse_memory(const json& value, const std::string& path,
                                      std::string_view where) {
  const JsonObject object(value, where, path);
  object.refuse_unknown({"time", "bytes"});
  const auto times = numbers(object, "time", path, where);
  const auto bytes = numbers(object, "bytes", path, where);
  check_length(bytes.size(), times.size(), "bytes", path, where);
  std::vector<MemoryPoint> points;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (i > 0 && times[i] < times[i - 1])
      throw InvalidArgument(where, fmt::format("{}.time[{}] is before the one before it", path, i));
    points.push_back({times[i], bytes[i]});
  }
  return points;
}

void check_order(const Timeline& timeline, std::string_view where) {
  const double slack = kMostOverlap * extent(timeline).length();
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const auto& spans = timeline.ranks[rank];
    for (std::size_t i = 1; i < spans.size(); ++i) {
      if (spans[i].start >= spans[i - 1].end - slack) continue;
      throw InvalidArgument(where, fmt::format("ranks[{}]: span {} starts at {}, before the one "
                                               "before it ends at {}",
                                               rank, i, spans[i].start, spans[i - 1].end));
    }
  }
}

}  // namespace

TimelineFile parse_timeline(std::string_view text, std::string_view where) {
  const json root = parse_json(text, where);
  const JsonObject object(root, where, "timeline");
  if (object.string_or("format", "") != kFormat)
    throw InvalidArgument(where, fmt::format("this is no timeline: format is not '{}'", kFormat));
  if (const auto version = object.integer("version", 0, INT32_MAX); version != kVersion) {
    throw InvalidArgument(where, fmt::format("the timeline is of version {}, this program reads {}",
                                             version, kVersion));
  }
  object.refuse_unknown({"format", "version", "step", "name", "time_unit", "ranks", "memory"});
  TimelineFile file;
  file.step = object.integer_or("step", 0, kMostSteps, 0);
  file.timeline.name = object.string("name");
  file.timeline.time_unit = object.string("time_unit");
  for (const json& rank : object.array("ranks")) {
    const std::string path = fmt::format("ranks[{}]", file.timeline.ranks.size());
    file.timeline.ranks.push_back(parse_rank(rank, path, where));
  }
  for (const json& memory : object.array("memory")) {
    const std::string path = fmt::format("memory[{}]", file.timeline.memory.size());
    file.timeline.memory.push_back(parse_memory(memory, path, where));
  }
  if (!file.timeline.memory.empty() && file.timeline.memory.size() != file.timeline.ranks.size())
    throw InvalidArgument(
        where, fmt::format("memory is of {} ranks, spans are of {}", file.timeline.memory.size(),
                           file.timeline.ranks.size()));
  check_order(file.timeline, where);
  return file;
}

std::string to_json(const TimelineFile& file) {
  ordered_json root = {{"format", kFormat},
                       {"version", kVersion},
                       {"step", file.step},
                       {"name", file.timeline.name},
                       {"time_unit", file.timeline.time_unit},
                       {"ranks", ordered_json::array()},
                       {"memory", ordered_json::array()}};
  for (const auto& rank : file.timeline.ranks) root["ranks"].push_back(rank_json(rank));
  for (const auto& points : file.timeline.memory) root["memory"].push_back(memory_json(points));
  return root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace pipewright
