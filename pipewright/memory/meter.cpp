#include "pipewright/memory/meter.h"

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/memory/account.h"
#include "pipewright/memory/cuda.h"

namespace pipewright {
namespace {

thread_local int current_slot = MemoryMeter::kOutside;

/// Lies before the memory that a tensor gets: the allocation it is part of, and who pays for it.
/// (Not in a context of its own: LibTorch's raw interface wants the context to be the memory.)
struct alignas(64) Charge {  // CPU memory is aligned so, and stays so
  c10::DataPtr memory;
  std::int64_t bytes;
  std::atomic<int> slot;
};

Charge* charge_of(void* data) { return static_cast<Charge*>(data) - 1; }

void release(void* data) {
  if (data == nullptr) return;
  Charge* paid = charge_of(data);
  credit(paid->slot.load(std::memory_order_relaxed), paid->bytes);
  const c10::DataPtr memory = std::move(paid->memory);  // freed when nothing in it is used any more
  paid->~Charge();
}

/// Asks another allocator for the memory, and writes it down.
class MeteredAllocator : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t num_bytes) override { return metered(num_bytes); }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    inner_->copy_data(to, from, num_bytes);
  }
#else
  c10::DataPtr allocate(size_t num_bytes) const override { return metered(num_bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  c10::Allocator* inner() const { return inner_; }
  void set_inner(c10::Allocator* inner) { inner_ = inner; }

 private:
  c10::DataPtr metered(size_t num_bytes) const {
    if (num_bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    c10::DataPtr memory = inner_->allocate(num_bytes + sizeof(Charge));
    void* start = memory.get();
    const c10::Device device = memory.device();
    const auto bytes = static_cast<std::int64_t>(num_bytes);
    auto* paid = new (start) Charge{std::move(memory), bytes, current_slot};
    charge(current_slot, bytes);
    return {paid + 1, paid + 1, &release, device};
  }

  c10::Allocator* inner_ = nullptr;
};

MeteredAllocator& meter() {
  static auto* allocator = new MeteredAllocator;  // storages keep pointers to it: never destroyed
  return *allocator;
}

std::mutex& install_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// LibTorch ignores an allocator of lower priority than the present one's.
void set_cpu_allocator(c10::Allocator* allocator) {
  c10::SetCPUAllocator(allocator, 0);
  if (c10::GetCPUAllocator() != allocator) c10::SetCPUAllocator(allocator, 255);
}

}  // namespace

void MemoryMeter::install() {
  const std::lock_guard lock(install_mutex());
  c10::Allocator* present = c10::GetCPUAllocator();
  if (present == &meter()) return;
  meter().set_inner(present);
  set_cpu_allocator(&meter());
}

void MemoryMeter::uninstall() {
  const std::lock_guard lock(install_mutex());
  if (c10::GetCPUAllocator() == &meter()) set_cpu_allocator(meter().inner());
}

void MemoryMeter::charge_stream(c10::Stream stream, int slot) {
  check_slot(slot);
  charge_cuda_stream(stream, slot);
}

int MemoryMeter::take_slot(int parent) { return take_account(parent); }

void MemoryMeter::give_back_slot(int slot) {
  check_slot(slot);
  give_back_account(slot);
}

MemoryStats MemoryMeter::stats(int slot) {
  check_slot(slot);
  return read_account(slot);
}

void MemoryMeter::reset_peak(int slot) {
  check_slot(slot);
  reset_account_peak(slot);
}

bool MemoryMeter::recharge(const torch::Tensor& tensor, int slot) {
  check_slot(slot);
  if (!tensor.defined() || !tensor.has_storage()) return false;
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.device().is_cuda()) return recharge_cuda(data.get(), slot);
  if (data.get_deleter() != &release || data.get_context() == nullptr) return false;
  Charge* paid = charge_of(data.get_context());
  credit(paid->slot.exchange(slot, std::memory_order_relaxed), paid->bytes);
  charge(slot, paid->bytes);
  return true;
}

void limit_device_memory(torch::Device device, std::int64_t bytes) {
  if (!device.is_cuda()) {
    throw InvalidArgument(
        "memory", fmt::format("the memory of '{}' cannot be limited; GPUs' can", device.str()));
  }
  if (bytes < 1) throw InvalidArgument("memory", fmt::format("a limit of {} bytes", bytes));
  limit_cuda_memory(device, bytes);
}

MemoryScope::MemoryScope(int slot) : outer_(current_slot) {
  check_slot(slot);
  current_slot = slot;
}

MemoryScope::~MemoryScope() { current_slot = outer_; }

}  // namespace pipewright
