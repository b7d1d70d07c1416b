#pragma once

#include "pipewright/ir/program.h"

namespace pipewright {

enum class BackwardOrder { kIncreasing, kAny };

/// Accepts a Program only if it can run and does all the work of a step:
/// - every stage's F, and its B or its I and W, of every micro-batch exactly once (a forward-only
///   Program: F alone), on the rank that owns the stage, after what it depends on;
/// - backwards of a stage in increasing micro-batch order, so that gradients add up in one order
///   (unless any order will do: for drawing other people's schedules, not for running them);
/// - R at most once, between F and the backward; REDUCE and STEP at most once a stage, after its
///   backwards, STEP after REDUCE, and on all stages or none;
/// - of an asynchronous Program: every F, R and B with the version of the weights that it uses and
///   that is there then, R and B with that of their F; after a backward of each stage, the same one
///   of all stages, a STEP (and before it a REDUCE, everywhere or nowhere) that makes the version
///   after the newest; `keeps` no newer than what is needed later. Where it is open or goes on from
///   another Program, the work is that which the one before has left, and less what it leaves: no
///   stage does a backward that the stage after it leaves;
/// - where it is lowered, every tensor that changes rank is sent once and received once;
/// - no deadlock, neither with sends that return at once nor with sends that block until received.
///
/// Throws ScheduleError: the reason in one line (duplicate, missing, wrong rank, waits for itself
/// with the cycle), then the grid with the step marked. Linear in the instructions.
void validate(const Program& program, BackwardOrder order = BackwardOrder::kIncreasing);

}  // namespace pipewright
