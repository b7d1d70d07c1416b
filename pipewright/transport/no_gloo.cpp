#include "pipewright/base/error.h"
#include "pipewright/transport/gloo.h"

namespace pipewright {

bool has_gloo() { return false; }

c10::intrusive_ptr<compat::ProcessGroup> make_gloo_group(
    const c10::intrusive_ptr<c10d::Store>& /*store*/, int /*rank*/, int /*size*/,
    const std::string& /*address*/, std::chrono::milliseconds /*timeout*/) {
  throw InvalidArgument("transport",
                        "this build has no Gloo: its headers were not there; install them (Debian: "
                        "libgloo-dev), name them with -DPIPEWRIGHT_GLOO_INCLUDE=, or use threads");
}

}  // namespace pipewright
