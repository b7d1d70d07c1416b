#pragma once

#include "pipewright/ir/program.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

/// The whole Program of a step that updates: with R, sends and receives, REDUCE and STEP as the
/// strategy asks for them. What the ranks of a Trainer run.
Program step_program(const Strategy& strategy, int micro_batches);

/// The same of a piece of an asynchronous schedule, which has its STEPs.
Program lowered_piece(Program piece, const Strategy& strategy);

}  // namespace pipewright
