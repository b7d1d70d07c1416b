#pragma once

#include <string_view>

#include "pipewright/ir/program.h"

namespace pipewright {

/// What must hold of versions, keeps and carried before anything is indexed by them: one stage a
/// rank at most, versions as long as the lists, one of `keeps` a rank; what is carried is fewer
/// micro-batches than there are stages, the first of them has its backward on stage 0 yet to come,
/// and no stage has done backwards that the stage after it has not. A synchronous Program has
/// nothing of all this. Throws ScheduleError in the name of `who`.
void check_carried(const Program& program, std::string_view who);

}  // namespace pipewright
