#include "pipewright/trace/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "pipewright/base/error.h"
#include "pipewright/trace/breakdown.h"
#include "pipewright/trace/drawing.h"
#include "pipewright/trace/palette.h"

namespace pipewright {
namespace {

constexpr std::string_view kPage =
#include "pipewright/trace/timeline_html.inc"
    ;
constexpr std::string_view kPlaceholder = "PIPEWRIGHT_DATA";

/// `[item,item,...]`, each item written by `write(out, element)`.
template <typename Range, typename Write>
void append_list(std::string& out, const Range& range, Write write) {
  out += '[';
  bool first = true;
  for (const auto& element : range) {
    if (!first) out += ',';
    first = false;
    write(out, element);
  }
  out += ']';
}

/// Eleven digits: a nanosecond in a minute, and half the size of what doubles print by themselves.
void append_number(std::string& out, double value) {
  fmt::format_to(std::back_inserter(out), "{:.11g}", finite(value));
}

std::string kinds_json() {
  std::string out;
  append_list(out, kAllKinds, [](std::string& text, Kind kind) {
    text +=
        fmt::format(R"({{"name":"{}","words":"{}","shades":)", kind_name(kind), kind_words(kind));
    std::vector<Rgb> shades;
    for (int chunk = 0; chunk < kNumShades; ++chunk) shades.push_back(kind_colour(kind, chunk));
    append_list(text, shades, [](std::string& inner, Rgb fill) {
      inner += fmt::format(R"(["{}","{}"])", hex(fill), hex(text_colour(fill)));
    });
    text += '}';
  });
  return out;
}

std::string parts_json() {
  std::string out;
  append_list(out, kBreakdownParts,
              [part = std::size_t{0}](std::string& text, const BreakdownPart& each) mutable {
                text += fmt::format(R"(["{}","{}"])", each.name, hex(part_colour(part++)));
              });
  return out;
}

/// A rank as columns, which pack better than an object a span: `kind` is a letter a span, 'a' for
/// the first of kAllKinds; `chunk` and `wait` are left out where they would be all 0, `version`
/// where it would be all -1.
void append_rank(std::string& out, const std::vector<Span>& all, double origin) {
  std::vector<Span> rank;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rank), drawable);
  const std::vector<int> stages = stages_of(rank);

  out += R"({"start":)";
  append_list(out, rank, [origin](auto& o, const Span& s) { append_number(o, s.start - origin); });
  out += R"(,"length":)";
  append_list(out, rank, [](auto& o, const Span& s) { append_number(o, s.duration()); });
  out += R"(,"kind":")";
  for (const Span& span : rank) out += static_cast<char>('a' + static_cast<int>(span.kind));
  out += R"(","batch":)";
  append_list(out, rank, [](auto& o, const Span& s) { o += std::to_string(s.micro_batch); });
  out += R"(,"stages":)";
  append_list(out, stages, [](auto& o, int stage) { o += std::to_string(stage); });
  if (stages.size() > 1) {
    out += R"(,"chunk":)";
    append_list(out, rank,
                [&](auto& o, const Span& s) { o += std::to_string(chunk_of(s.stage, stages)); });
  }
  if (std::any_of(rank.begin(), rank.end(), [](const Span& s) { return s.version >= 0; })) {
    out += R"(,"version":)";
    append_list(out, rank, [](auto& o, const Span& s) { o += std::to_string(s.version); });
  }
  if (std::any_of(rank.begin(), rank.end(), [](const Span& s) { return s.link_wait > 0; })) {
    out += R"(,"wait":)";
    append_list(out, rank, [](auto& o, const Span& s) { append_number(o, s.link_wait); });
  }
  out += '}';
}

/// Times and bytes by turns.
void append_memory(std::string& out, const std::vector<MemoryPoint>& points, double origin) {
  append_list(out, points, [origin](std::string& text, const MemoryPoint& point) {
    append_number(text, point.time - origin);
    text += ',';
    append_number(text, point.bytes);
  });
}

void append_timeline(std::string& out, const Timeline& timeline) {
  const StepTimes times(timeline);
  const Breakdown parts = breakdown(times);
  const double origin = extent(timeline).start;
  out += fmt::format(R"({{"name":{},"unit":{},"step":{},"bubble":{},"parts":)",
                     json_string(timeline.name), json_string(timeline.time_unit),
                     finite(times.step_time()), finite(times.bubble_fraction()));
  append_list(out, kBreakdownParts, [&parts](std::string& text, const BreakdownPart& part) {
    append_number(text, parts.total > 0 ? parts.*part.value / parts.total : 0);
  });
  out += R"(,"ranks":)";
  append_list(out, timeline.ranks,
              [origin](std::string& text, const auto& rank) { append_rank(text, rank, origin); });
  out += R"(,"memory":)";
  append_list(out, timeline.memory, [origin](std::string& text, const auto& points) {
    append_memory(text, points, origin);
  });
  out += '}';
}

}  // namespace

std::string to_html(std::span<const Timeline> timelines, const std::string& title) {
  std::string data = fmt::format(R"({{"title":{},"kinds":{},"parts":{},"timelines":)",
                                 json_string(title), kinds_json(), parts_json());
  append_list(data, timelines, append_timeline);
  data += '}';

  const std::size_t at = kPage.find(kPlaceholder);
  internal_check(at != std::string_view::npos, "timeline.html has no place for the data");
  std::string out(kPage.substr(0, at));
  out += data;
  out += kPage.substr(at + kPlaceholder.size());
  return out;
}

}  // namespace pipewright
