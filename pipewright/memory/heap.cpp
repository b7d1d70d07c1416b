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
  // A thread's memory is of heaps of 64 MiB. One that becomes empty goes back whatever the
  // threshold says, unless what is left ahead in the one before is less than this.
  constexpr int kHeap = 64 << 20;
  if (std::getenv("MALLOC_TOP_PAD_") == nullptr) mallopt(M_TOP_PAD, kHeap);
#endif
}

}  // namespace pipewright
