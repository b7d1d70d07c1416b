#include "pipewright/transport/nccl.h"

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace pipewright {
namespace {

/// Deadlines and failures are ours: LibTorch's watchdog would end the process without our words.
/// What the user has set stays.
void leave_failures_to_us() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
    setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  });
}

}  // namespace

bool has_nccl() { return true; }

std::string gpu_name(torch::Device device) {
  std::string name;
  for (const char byte : at::cuda::getDeviceProperties(device.index())->uuid.bytes)
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name;
}

c10::intrusive_ptr<compat::ProcessGroup> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  leave_failures_to_us();
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = kForEver;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace pipewright
