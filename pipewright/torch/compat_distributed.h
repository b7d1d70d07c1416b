#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

/// What differs between LibTorch versions in c10d. Apart from compat.h: nobody else should pay for
/// these headers.
namespace pipewright::compat {

/// What Gloo and NCCL implement.
#if TORCH_VERSION_MAJOR >= 2
using ProcessGroup = c10d::Backend;
#else
using ProcessGroup = c10d::ProcessGroup;
#endif

/// Ends what the group's kernels wait for; the group cannot be used any more. LibTorch 1.x has no
/// such call: there they end with the process.
#if TORCH_VERSION_MAJOR >= 2
inline void abort_group(ProcessGroup& group) { group.abort(); }
#else
inline void abort_group(ProcessGroup& /*group*/) {}
#endif

}  // namespace pipewright::compat
