#include "pipewright/trace/chrome.h"

#include <fmt/format.h>

#include <iterator>

#include "pipewright/trace/drawing.h"

namespace pipewright {
namespace {

/// Written by hand, since a JSON value for each of a million events would take gigabytes.
class ChromeWriter {
 public:
  void timeline(std::size_t process, const Timeline& timeline) {
    origin_ = extent(timeline).start;
    metadata(process, 0, "process_name", "name", json_string(timeline.name));
    metadata(process, 0, "process_sort_index", "sort_index", std::to_string(process));
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      metadata(process, rank, "thread_name", "name", fmt::format("\"rank {}\"", rank));
      metadata(process, rank, "thread_sort_index", "sort_index", std::to_string(rank));
      for (const Span& span : timeline.ranks[rank]) complete(process, rank, span);
    }
    for (std::size_t rank = 0; rank < timeline.memory.size(); ++rank) {
      for (const MemoryPoint& point : timeline.memory[rank]) counter(process, rank, point);
    }
  }

  std::string finish() && {
    return "{\"traceEvents\":[" + events_ + "\n],\"displayTimeUnit\":\"ms\"}\n";
  }

 private:
  double microseconds(double seconds) const { return finite(finite(seconds) * 1e6); }

  template <typename... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    events_ += events_.empty() ? "\n" : ",\n";
    fmt::format_to(std::back_inserter(events_), format, std::forward<Args>(args)...);
  }

  void metadata(std::size_t process, std::size_t thread, const char* what, const char* key,
                const std::string& json) {
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", process, thread, what,
          key, json);
  }

  void complete(std::size_t process, std::size_t rank, const Span& span) {
    if (!drawable(span)) return;
    event(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":"{}","cat":"{}","args":{{"stage":{},"micro_batch":{}{}}}}})",
        process, rank, microseconds(span.start - origin_), microseconds(span.duration()),
        span_label(span), kind_words(span.kind), span.stage, span.micro_batch,
        span.version < 0 ? "" : fmt::format(R"(,"version":{})", span.version));
  }

  void counter(std::size_t process, std::size_t rank, const MemoryPoint& point) {
    event(R"({{"ph":"C","pid":{},"tid":{},"ts":{},"name":"memory rank {}","args":{{"bytes":{}}}}})",
          process, rank, microseconds(point.time - origin_), rank, finite(point.bytes));
  }

  double origin_ = 0;
  std::string events_;
};

}  // namespace

std::string to_chrome_trace(std::span<const Timeline> timelines) {
  ChromeWriter writer;
  for (std::size_t i = 0; i < timelines.size(); ++i) writer.timeline(i, timelines[i]);
  return std::move(writer).finish();
}

}  // namespace pipewright
