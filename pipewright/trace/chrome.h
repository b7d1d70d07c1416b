#pragma once

#include <span>
#include <string>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// The timelines as a Chrome trace (JSON), which https://ui.perfetto.dev and chrome://tracing open:
/// a process a timeline, a thread a rank, a counter a rank's memory. Each timeline starts at 0.
/// Times are in microseconds; where the timeline has no unit, its unit counts as a second.
std::string to_chrome_trace(std::span<const Timeline> timelines);

}  // namespace pipewright
