#pragma once

#include <string>

#include "pipewright/trace/timeline.h"

namespace pipewright {

struct TextOptions {
  int width = 100;      // columns of the terminal; lines are not longer, but for very small widths
  bool colour = false;  // ANSI colours, for a terminal
  int max_ranks = 32;   // of more ranks, only the first and the last are drawn
};

/// A timeline for the terminal, a line a rank, to scale. Where all times are multiples of a common
/// unit and it fits, the unit is a whole number of columns, so that boxes line up:
///
///     1f1b: step time 15, bubble 20.0%
///     rank 0 |F0-F1-......B0----F2-B1----F3-B2----...B3----|
///     rank 1 |...F0-B0----F1-B1----F2-B2----F3-B3----......|
///             0              5              10
///     F forward  B backward  . idle
///
/// A column that many spans share shows the kind that fills most of it. Where a rank has several
/// stages, the letters of every second one are lower case.
std::string draw_text(const Timeline& timeline, const TextOptions& options = {});

}  // namespace pipewright
