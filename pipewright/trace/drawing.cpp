#include "pipewright/trace/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pipewright/base/units.h"

namespace pipewright {

bool drawable(const Span& span) {
  return std::abs(span.start) < 1e300 && std::abs(span.end) < 1e300 && span.end >= span.start;
}

double finite(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kMost =
      1e308;  // not the greatest double: rounded to fewer digits it is too great
  return std::clamp(value, -kMost, kMost);
}

Extent extent(const Timeline& timeline) {
  Extent all;
  bool any = false;
  for (const auto& rank : timeline.ranks) {
    for (const Span& span : rank) {
      if (!drawable(span)) continue;
      all.start = any ? std::min(all.start, span.start) : span.start;
      all.end = any ? std::max(all.end, span.end) : span.end;
      any = true;
    }
  }
  return all;
}

double longest(std::span<const Timeline> timelines) {
  double most = 0;
  for (const Timeline& timeline : timelines) most = std::max(most, extent(timeline).length());
  return most;
}

std::vector<int> stages_of(const std::vector<Span>& rank) {
  std::vector<int> stages;
  for (const Span& span : rank) {
    const auto at = std::lower_bound(stages.begin(), stages.end(), span.stage);
    if (at == stages.end() || *at != span.stage) stages.insert(at, span.stage);
  }
  return stages;
}

int chunk_of(int stage, const std::vector<int>& stages) {
  const auto at = std::lower_bound(stages.begin(), stages.end(), stage);
  return static_cast<int>(at - stages.begin());
}

int num_chunks(const Timeline& timeline) {
  std::size_t most = 1;
  for (const auto& rank : timeline.ranks) most = std::max(most, stages_of(rank).size());
  return static_cast<int>(most);
}

std::vector<Kind> kinds_in(std::span<const Timeline> timelines) {
  std::array<bool, kAllKinds.size()> occurs{};
  for (const Timeline& timeline : timelines) {
    for (const auto& rank : timeline.ranks) {
      for (const Span& span : rank) {
        if (drawable(span) && span.duration() > 0)
          occurs[static_cast<std::size_t>(span.kind)] = true;
      }
    }
  }
  std::vector<Kind> kinds;
  for (const Kind kind : kAllKinds) {
    if (occurs[static_cast<std::size_t>(kind)]) kinds.push_back(kind);
  }
  return kinds;
}

bool has_versions(const Timeline& timeline) {
  return std::any_of(timeline.ranks.begin(), timeline.ranks.end(), [](const auto& rank) {
    return std::any_of(rank.begin(), rank.end(), [](const Span& s) { return s.version >= 0; });
  });
}

int shade_of(const Span& span, const std::vector<int>& stages) {
  return span.version >= 0 ? span.version : chunk_of(span.stage, stages);
}

std::string span_label(const Span& span) {
  const std::string label = label_without_version(span);
  return span.version < 0 ? label : fmt::format("{}@{}", label, span.version);
}

std::string label_without_version(const Span& span) {
  std::string label(kind_name(span.kind));
  if (span.micro_batch >= 0) label += std::to_string(span.micro_batch);
  return label;
}

std::string format_time(double time, std::string_view unit) {
  if (unit == "s") return format_seconds(time);
  return unit.empty() ? format_number(time) : fmt::format("{} {}", format_number(time), unit);
}

std::string summary(const Timeline& timeline) {
  const StepTimes times(timeline);
  if (extent(timeline).empty()) return "nothing ran";
  const bool asynchronous = has_versions(timeline);
  return fmt::format("{} {}, {} {:.1f}%", asynchronous ? "whole time" : "step time",
                     format_time(times.step_time(), timeline.time_unit),
                     asynchronous ? "idle" : "bubble", 100 * finite(times.bubble_fraction()));
}

double tick_step(double length, int most) {
  const double least = length / std::max(most, 1);
  if (!(least > 0) || !std::isfinite(least)) return 1;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string json_string(std::string_view text) {
  using nlohmann::json;
  const std::string quoted =
      json(std::string(text)).dump(-1, ' ', true, json::error_handler_t::replace);
  std::string out;
  for (const char c : quoted) {
    if (c == '<') {
      out += "\\u003c";  // else `</script>` or `<!--` in a name would end the element
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace pipewright
