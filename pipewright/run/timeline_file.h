#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// A Timeline as a file of a run. Of a measured one, the step it is of; 0 for a prediction.
struct TimelineFile {
  std::int64_t step = 0;
  Timeline timeline;
};

/// Throws InvalidArgument(`where`) naming the member, and for spans that do not follow each other.
TimelineFile parse_timeline(std::string_view text, std::string_view where);

/// The text that parse_timeline reads back to an equal Timeline. Spans whose times are no finite
/// numbers are left out, as pictures do.
std::string to_json(const TimelineFile& file);

}  // namespace pipewright
