#pragma once

#include <span>
#include <string>

#include "pipewright/trace/timeline.h"

namespace pipewright {

/// One self-contained page (no network, no build step) with the timelines below each other on one
/// time axis: ranks as lanes, memory below each, hover, zoom, pan, light and dark. The page itself
/// is timeline.html; this fills in the data.
std::string to_html(std::span<const Timeline> timelines, const std::string& title);

}  // namespace pipewright
