#pragma once

#include <span>
#include <string>

#include "pipewright/trace/timeline.h"

namespace pipewright {

struct SvgOptions {
  double width = 1000;      // of the picture, in pixels
  double lane_height = 24;  // of a rank
};

/// A picture that stands still, for a README: the timelines below each other on one time axis, with
/// step times and bubbles. It brings its own background, light or dark as the reader's system is.
std::string to_svg(std::span<const Timeline> timelines, const SvgOptions& options = {});

}  // namespace pipewright
