#include "pipewright/memory/cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "pipewright/memory/account.h"

namespace pipewright {
namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

/// Follows the caching allocator's events. The allocator tells the stream, not the thread, and the
/// autograd engine runs a node on the stream of its forward: so the stream stands for the rank.
class CudaLedger {
 public:
  static CudaLedger& instance() {
    static auto* ledger = new CudaLedger;  // the allocator may call it while the process ends
    return *ledger;
  }

  void set_slot(c10::Stream stream, int slot) {
    void* handle = c10::cuda::CUDAStream(stream).stream();
    const std::lock_guard lock(mutex_);
    slots_[{stream.device_index(), handle}] = slot;
  }

  bool recharge(const void* data, int slot) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<size_t>(data));
    if (found == blocks_.end()) return false;
    credit(std::exchange(found->second.slot, slot), found->second.bytes);
    charge(slot, found->second.bytes);
    return true;
  }

 private:
  struct Block {
    int slot;
    std::int64_t bytes;
  };

  // The allocator has one list of watchers a device, and makes it when CUDA starts.
  CudaLedger() {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(
        [this](const TraceEntry& entry) { follow(entry); });
  }

  /// Called with the allocator's lock held: our lock is the last one, nothing is called under it.
  void follow(const TraceEntry& entry) {
    // Freed is when nobody holds it, not when the last stream has caught up: as on the CPU.
    if (entry.action_ != TraceEntry::ALLOC && entry.action_ != TraceEntry::FREE_REQUESTED) return;
    const std::lock_guard lock(mutex_);
    if (entry.action_ == TraceEntry::ALLOC) {
      const auto found = slots_.find({entry.device_, entry.stream_});
      const int slot = found == slots_.end() ? MemoryMeter::kOutside : found->second;
      blocks_[entry.addr_] = {slot, static_cast<std::int64_t>(entry.size_)};
      charge(slot, static_cast<std::int64_t>(entry.size_));
    } else if (const auto block = blocks_.find(entry.addr_); block != blocks_.end()) {
      credit(block->second.slot, block->second.bytes);
      blocks_.erase(block);
    }
  }

  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, void*>, int> slots_;
  std::unordered_map<size_t, Block> blocks_;  // by address: unique over all devices
};

}  // namespace

void charge_cuda_stream(c10::Stream stream, int slot) {
  CudaLedger::instance().set_slot(stream, slot);
}

bool recharge_cuda(const void* data, int slot) {
  return CudaLedger::instance().recharge(data, slot);
}

void limit_cuda_memory(torch::Device device, std::int64_t bytes) {
  const auto index = device.has_index() ? device.index() : c10::DeviceIndex{0};
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  at::cuda::clearCublasWorkspaces();
  c10::cuda::CUDACachingAllocator::emptyCache();
  const auto all = at::cuda::getDeviceProperties(index)->totalGlobalMem;
  c10::cuda::CUDACachingAllocator::setMemoryFraction(
      std::min(1.0, static_cast<double>(bytes) / static_cast<double>(all)), index);
}

}  // namespace pipewright
