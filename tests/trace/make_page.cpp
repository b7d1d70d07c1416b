// Writes the page that browser_test.py opens, and beside it what the test is to find in it:
//
//     trace_make_page FOLDER    ->  FOLDER/timeline.html, FOLDER/timeline.json, FOLDER/timeline.svg

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/trace/drawing.h"
#include "pipewright/trace/html.h"
#include "pipewright/trace/palette.h"
#include "pipewright/trace/svg.h"
#include "tests/trace/sample.h"

namespace pipewright {
namespace {

/// Timelines that would break a careless page: odd names, a rank without spans, nothing at all.
std::vector<Timeline> sample_timelines() {
  Timeline odd = gpipe_timeline(2, 3);
  odd.name = "a\"</script><!-- \xE2\x80\xA8 & <b>\xC3\xA9</b>";
  odd.time_unit = "";
  odd.ranks.emplace_back();
  odd.memory.clear();
  odd.ranks[0].front().kind = Kind::kRecompute;
  Timeline empty;
  empty.name = "empty";
  return {gpipe_timeline(4, 8), chunked_timeline(4, 4), odd, empty, asynchronous_timeline(4)};
}

nlohmann::json expected_box(const Timeline& timeline, std::size_t rank, std::size_t index) {
  const auto& spans = timeline.ranks[rank];
  const Span& span = spans[index];
  const double origin = extent(timeline).start;
  const double free_since = index > 0 ? spans[index - 1].end : origin;
  const auto time = [&](double value) { return format_time(value, timeline.time_unit); };
  nlohmann::json box = {{"rank", rank},
                        {"label", span_label(span)},
                        {"kind", kind_words(span.kind)},
                        {"stage", span.stage},
                        {"micro_batch", span.micro_batch},
                        {"start", time(span.start - origin)},
                        {"duration", time(span.duration())},
                        {"idle_before", time(span.start - free_since)},
                        {"link_wait", nullptr},
                        {"version", nullptr},
                        {"colour", hex(kind_colour(span.kind, shade_of(span, stages_of(spans))))}};
  if (span.version >= 0) box["version"] = std::to_string(span.version);
  if (span.link_wait > 0) box["link_wait"] = time(span.link_wait);
  return box;
}

void make_page(const std::string& folder) {
  const std::vector<Timeline> timelines = sample_timelines();
  const std::string title = "Schedules side by side";
  nlohmann::json expected = {{"title", title}, {"names", nlohmann::json::array()}};
  for (std::size_t t = 0; t < timelines.size(); ++t) {
    expected["names"].push_back(timelines[t].name);
    for (std::size_t rank = 0; rank < timelines[t].ranks.size(); ++rank) {
      for (std::size_t i = 0; i < timelines[t].ranks[rank].size(); ++i) {
        expected["boxes"].push_back(expected_box(timelines[t], rank, i));
        expected["boxes"].back()["timeline"] = t;
      }
    }
  }
  write_file(folder + "/timeline.html", to_html(timelines, title), "trace_make_page");
  write_file(folder + "/timeline.json", expected.dump(1), "trace_make_page");
  write_file(folder + "/timeline.svg", to_svg(timelines), "trace_make_page");
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: trace_make_page FOLDER\n");
    return 2;
  }
  try {
    pipewright::make_page(argv[1]);
  } catch (const pipewright::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
