#pragma once

#include <torch/torch.h>

namespace pipewright {

// The CUDA side of MemoryMeter: cuda.cpp where LibTorch has CUDA, else no_cuda.cpp.

void charge_cuda_stream(c10::Stream stream, int slot);
bool recharge_cuda(const void* data, int slot);
void limit_cuda_memory(torch::Device device, std::int64_t bytes);

}  // namespace pipewright
