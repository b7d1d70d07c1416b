#include "pipewright/torch/idle_threads.h"

#include <dlfcn.h>

namespace pipewright {

void release_idle_threads() {
  // By name: the OpenMP is LibTorch's, which may be one of its own. OpenMP 5 has it.
  using Pause = int (*)(int);
  constexpr int kSoft = 1;  // omp_pause_soft
  static const auto pause =
      reinterpret_cast<Pause>(dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));  // NOLINT
  if (pause != nullptr) pause(kSoft);
}

}  // namespace pipewright
