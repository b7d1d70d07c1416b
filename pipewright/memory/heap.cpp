#include "pipewright/memory/heap.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace pipewright {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kMost = 1 << 30;
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) mallopt(M_TRIM_THRESHOLD, kMost);
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) mallopt(M_MMAP_THRESHOLD, kMost);
#endif
}

}  // namespace pipewright
