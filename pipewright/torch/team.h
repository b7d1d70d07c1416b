#pragma once

#include <functional>

namespace pipewright {

/// Runs `work` on the calling thread and, at the same time, on the intra-op threads that OpenMP
/// keeps for it, `members` in all or fewer; returns when all have ended. Within, LibTorch's
/// operations use one thread each. No others are started, and that is the point: idle intra-op
/// threads spin for milliseconds before they sleep, on the cores that threads of our own would
/// need.
///
/// False, and nothing has run, where the caller has fewer intra-op threads, is such a thread
/// itself, or LibTorch uses another OpenMP than GNU's. `work` must not throw.
bool run_on_team(int members, const std::function<void()>& work);

}  // namespace pipewright
