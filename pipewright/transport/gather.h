#pragma once

#include "pipewright/transport/store.h"

namespace pipewright {

/// Waits until all processes of a run have come, and returns their store. Throws TransportError in
/// all of those that came, naming those that did not come within the deadline, two with one rank,
/// or one that was started with another number of processes. `again`: this process has been part of
/// such a run before, whose store may still be there.
StorePtr gather(const ProcessPlace& place, const std::string& prefix, bool again,
                std::chrono::duration<double> deadline);

}  // namespace pipewright
