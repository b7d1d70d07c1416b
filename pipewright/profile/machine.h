#pragma once

#include <string>

#include "pipewright/torch/stream.h"

namespace pipewright {

/// Processor, cores, threads and LibTorch's version, for people.
std::string machine_name();

/// Bytes a second from a GPU to pinned memory and back, the slower way of the two; 0 on the CPU.
double host_bandwidth(const DeviceStream& stream);

}  // namespace pipewright
