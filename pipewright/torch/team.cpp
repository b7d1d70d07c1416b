#include "pipewright/torch/team.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace pipewright {
namespace {

void call(void* work) { (*static_cast<const std::function<void()>*>(work))(); }

}  // namespace

bool run_on_team(int members, const std::function<void()>& work) {
  // What `#pragma omp parallel` calls, by name: the OpenMP must be the one that LibTorch uses,
  // which may have come with it.
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  static const auto parallel = reinterpret_cast<Parallel>(  // NOLINT: a function by its name
      dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (parallel == nullptr || at::in_parallel_region() || at::get_num_threads() < members)
    return false;
  parallel(call, const_cast<std::function<void()>*>(&work), static_cast<unsigned>(members), 0);
  return true;
}

}  // namespace pipewright
