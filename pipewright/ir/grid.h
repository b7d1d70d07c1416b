#pragma once

#include <cstddef>
#include <string>

#include "pipewright/ir/program.h"

namespace pipewright {

/// A place in a Program. `step` may be one past the end of the rank's list: where something is
/// missing.
struct Place {
  std::size_t rank = 0;
  std::size_t step = 0;
};

/// The part of a Program around a place, a line a rank, with that place in brackets:
///
///              step 0  step 1  step 2
///     rank 0   0F0     0F1     0B0
///     rank 1   1F0    [1F0]    1B0
///
/// Large Programs show the ranks and steps nearby and say so with dots.
std::string show_grid(const Program& program, Place mark);

}  // namespace pipewright
