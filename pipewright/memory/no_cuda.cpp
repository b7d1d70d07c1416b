#include "pipewright/base/error.h"
#include "pipewright/memory/cuda.h"

namespace pipewright {

void charge_cuda_stream(c10::Stream, int) {
  throw InvalidArgument("memory", "this build has no CUDA; link a LibTorch that has");
}

void limit_cuda_memory(torch::Device, std::int64_t) {
  throw InvalidArgument("memory", "this build has no CUDA; link a LibTorch that has");
}

bool recharge_cuda(const void*, int) { return false; }

}  // namespace pipewright
