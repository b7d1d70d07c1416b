#include "pipewright/memory/heap.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace pipewright {
namespace {

constexpr std::size_t kBytes = std::size_t{48} << 20;  // more than malloc keeps by itself

/// Whether malloc still has a block's memory after it was freed.
bool keeps_a_block() {
  void* block = std::malloc(kBytes);
  *static_cast<volatile char*>(block) = 1;       // or the compiler leaves both calls out
  const bool own = mallinfo2().arena >= kBytes;  // not the kernel's, for this block alone
  std::free(block);
  return own && mallinfo2().fordblks >= kBytes;
}

/// More than one of a thread's heaps has: takes it, writes to it, frees it.
void use_several_heaps() {
  constexpr std::size_t kBlock = std::size_t{16} << 20;
  std::array<void*, 12> blocks{};
  for (void*& block : blocks) {
    block = std::malloc(kBlock);
    std::memset(block, 1, kBlock);
  }
  for (void* block : blocks) std::free(block);
}

/// Whether a thread that does the same again touches the same pages.
bool keeps_heaps_of_a_thread() {
  bool kept = false;
  std::thread([&] {
    const auto faults = [] {
      rusage used{};
      getrusage(RUSAGE_THREAD, &used);
      return used.ru_minflt;
    };
    use_several_heaps();
    const auto before = faults();
    use_several_heaps();
    constexpr long kFew = 2000;  // of 49152 pages
    kept = faults() - before < kFew;
  }).join();
  return kept;
}

[[noreturn]] void tell(bool right) { std::exit(right ? 0 : 1); }

// Each in a process of its own: it is for the whole process, and for good.

TEST(HeapDeathTest, KeepsWhatIsFreed) {
  EXPECT_EXIT(tell(!keeps_a_block()), testing::ExitedWithCode(0), "");
  EXPECT_EXIT((keep_freed_memory(), tell(keeps_a_block())), testing::ExitedWithCode(0), "");
}

TEST(HeapDeathTest, KeepsWhatThreadsFree) {
  EXPECT_EXIT(tell(!keeps_heaps_of_a_thread()), testing::ExitedWithCode(0), "");
  EXPECT_EXIT((keep_freed_memory(), tell(keeps_heaps_of_a_thread())), testing::ExitedWithCode(0),
              "");
}

TEST(HeapDeathTest, LeavesWhatTheEnvironmentSays) {
  const auto run = [] {
    setenv("MALLOC_TRIM_THRESHOLD_", "131072", 1);
    setenv("MALLOC_MMAP_THRESHOLD_", "131072", 1);
    keep_freed_memory();
    tell(!keeps_a_block());
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pipewright
