#pragma once

#include "pipewright/ir/program.h"

namespace pipewright {

// Lowering passes: each takes a Program and returns it with more instructions. All of them
// together:
//     lower_step(lower_reduce(lower_sends(lower_recompute(program, mode))))

/// Which micro-batches drop their activations and make them again.
enum class RecomputePass { kAll, kExceptLast };

/// Adds R just before the backward of the chosen micro-batches: it needs no gradient, so it runs
/// while that is still on its way. kExceptLast keeps the last micro-batch's activations, whose
/// backward follows at once; an asynchronous Program has no last one, and kExceptLast is kAll
/// there.
Program lower_recompute(const Program& program, RecomputePass pass);

/// Adds SEND and RECV wherever a tensor goes to another rank: the send right after what made it,
/// the receive in the receiver's list at the same moment of a walk. As the walk itself could run in
/// that order, the result has no deadlock even where a send blocks until it is received. Of an open
/// Program every send is received in it: no tensor is on its way between two pieces. Throws
/// ScheduleError where the program cannot run, InvalidArgument where it has sends already.
Program lower_sends(const Program& program);

/// Adds REDUCE right after the last backward of every stage (and the send of its gradient), so that
/// it overlaps what is left of the other stages; in an asynchronous Program directly before each
/// STEP.
Program lower_reduce(const Program& program);

/// Adds STEP for every stage of a rank at the end of its list; an asynchronous Program has its
/// STEPs and stays as it is.
Program lower_step(const Program& program);

}  // namespace pipewright
