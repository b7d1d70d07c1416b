#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pipewright/ir/grid.h"
#include "pipewright/ir/program.h"

namespace pipewright {

// What the parts of the validator share.

/// "rank 1, step 4".
std::string words_for(Place place);

/// Throws ScheduleError: the place, the reason, and the grid with the place marked.
[[noreturn]] void reject(const Program& program, Place mark, std::string_view reason);

/// Where an instruction first stands.
std::optional<Place> find(const Program& program, Instruction wanted);

}  // namespace pipewright
