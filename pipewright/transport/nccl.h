#pragma once

#include <string>
#include <vector>

#include "pipewright/transport/ordered_transport.h"

namespace pipewright {

/// Whether this build has NCCL: LibTorch with CUDA has it, its header (nccl.h) comes apart.
bool has_nccl();

/// What a GPU of this process is known by on its machine: its UUID. Throws InvalidArgument where
/// this build has no NCCL.
std::string gpu_name(torch::Device device);

/// A group of processes for tensors of one GPU each. Returns at once: connections are made when
/// they are first used. Waits have no deadline of their own. Throws InvalidArgument where this
/// build has no NCCL.
c10::intrusive_ptr<compat::ProcessGroup> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

/// The same for processes of a world, by a name that no other group has.
c10::intrusive_ptr<compat::ProcessGroup> make_nccl_group(const World& world,
                                                         const std::string& name, int rank,
                                                         int size);

/// Says who has which GPU, waits until all have said it, and throws InvalidArgument in all of them
/// where two have one: NCCL would refuse it late, or hang. `name`: that no other such check has;
/// `gpu`: of this process, on all machines.
void check_own_gpus(const World& world, const std::string& name, const std::string& gpu,
                    std::chrono::duration<double> deadline);

/// The GPU of this process, on all machines: with the machine's name.
std::string gpu_of_machine(torch::Device device);

/// The words for ranks that share GPUs, or empty. `gpus`: by process.
std::string shared_gpu_words(const std::vector<std::string>& gpus);

}  // namespace pipewright
