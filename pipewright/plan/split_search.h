#pragma once

#include <vector>

#include "pipewright/plan/split_problem.h"

namespace pipewright {

/// A split that evens out the longest paths through the stages: for most schedules near the best.
/// Cheap: binary searches, no simulation.
std::vector<std::size_t> even_paths(SplitProblem& problem);

/// Moves boundaries, alone and several side by side, while that makes `split` better and
/// `problem.work()` is below `most_work`.
void climb(SplitProblem& problem, Split& split, std::int64_t most_work);

/// Makes `split` the best of all. False where the work reached `most_work` before that was certain;
/// then `split` is the best that was seen. Depth first, a stage at a time from the left, leaving
/// out what cannot become better than the best so far.
bool exhaust(SplitProblem& problem, Split& split, std::int64_t most_work);

}  // namespace pipewright
