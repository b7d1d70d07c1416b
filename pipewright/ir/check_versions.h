#pragma once

#include "pipewright/ir/program.h"

namespace pipewright {

/// The part of validate() about versions of the weights: of an asynchronous Program whose work is
/// complete and in order. Throws ScheduleError as validate() does.
void check_program_versions(const Program& program);

}  // namespace pipewright
