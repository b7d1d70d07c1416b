#pragma once

#include <chrono>
#include <string>

#include "pipewright/torch/compat_distributed.h"
#include "pipewright/transport/world.h"

namespace pipewright {

/// Whether this build has Gloo: LibTorch's c10d has it, but not every LibTorch ships its headers.
bool has_gloo();

/// A group of processes over TCP, for tensors on the CPU. All must call it; returns when all have.
/// `address`: of this machine, where the others reach it. Throws InvalidArgument where this build
/// has no Gloo.
c10::intrusive_ptr<compat::ProcessGroup> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const std::string& address,
    std::chrono::milliseconds timeout);

/// The same for processes of a world, by a name that no other group has. Throws TransportError
/// where the run fails meanwhile, or they are not connected within the timeout.
c10::intrusive_ptr<compat::ProcessGroup> make_gloo_group(const World& world,
                                                         const std::string& name, int rank,
                                                         int size,
                                                         std::chrono::milliseconds timeout);

}  // namespace pipewright
