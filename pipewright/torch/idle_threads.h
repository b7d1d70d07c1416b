#pragma once

namespace pipewright {

/// Ends the intra-op threads that OpenMP keeps for the calling thread; its next operation with
/// several threads starts them anew, which takes some tens of microseconds. Idle ones spin for
/// milliseconds before they sleep, on cores that others may need meanwhile. Does nothing where
/// there are none, or the OpenMP in use cannot.
void release_idle_threads();

}  // namespace pipewright
