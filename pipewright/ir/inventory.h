#pragma once

#include "pipewright/ir/validate.h"

namespace pipewright {

/// The part of validate() that looks at instructions one at a time and counts them: everything but
/// versions and deadlock. The Program's numbers are in range.
void check_inventory(const Program& program, BackwardOrder order);

}  // namespace pipewright
