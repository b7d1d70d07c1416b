#include "pipewright/base/error.h"
#include "pipewright/transport/nccl.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse() {
  throw InvalidArgument("transport",
                        "this build has no NCCL: it needs a LibTorch with CUDA and nccl.h; name "
                        "its folder with -DPIPEWRIGHT_NCCL_INCLUDE=, or use gloo");
}

}  // namespace

bool has_nccl() { return false; }

std::string gpu_name(torch::Device /*device*/) { refuse(); }

c10::intrusive_ptr<compat::ProcessGroup> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& /*store*/, int /*rank*/, int /*size*/) {
  refuse();
}

}  // namespace pipewright
