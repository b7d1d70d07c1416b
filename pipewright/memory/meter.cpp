#include "pipewright/memory/meter.h"

#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "pipewright/memory/account.h"
#include "pipewright/memory/cuda.h"

namespace pipewright {
namespace {

thread_local int current_slot = MemoryMeter::kOutside;

/// The context of a metered DataPtr: the memory itself and who pays for it.
struct Charge {
  c10::DataPtr memory;
  std::int64_t bytes;
  std::atomic<int> slot;
};

void release(void* context) {
  const std::unique_ptr<Charge> paid(static_cast<Charge*>(context));
  credit(paid->slot.load(std::memory_order_relaxed), paid->bytes);
}

/// Asks another allocator for the memory, and writes it down. (The raw interface, where the context
/// is the data pointer itself, is not offered: that is the base class's answer.)
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

  c10::Allocator* inner() const { return inner_; }
  void set_inner(c10::Allocator* inner) { inner_ = inner; }

 private:
  c10::DataPtr metered(size_t num_bytes) const {
    c10::DataPtr memory = inner_->allocate(num_bytes);
    if (num_bytes == 0) return memory;
    void* data = memory.get();
    const c10::Device device = memory.device();
    const auto bytes = static_cast<std::int64_t>(num_bytes);
    auto* paid = new Charge{std::move(memory), bytes, current_slot};
    charge(current_slot, bytes);
    return {data, paid, &release, device};
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
  auto* paid = data.cast_context<Charge>(&release);
  if (paid == nullptr) return false;
  credit(paid->slot.exchange(slot, std::memory_order_relaxed), paid->bytes);
  charge(slot, paid->bytes);
  return true;
}

MemoryScope::MemoryScope(int slot) : outer_(current_slot) {
  check_slot(slot);
  current_slot = slot;
}

MemoryScope::~MemoryScope() { current_slot = outer_; }

}  // namespace pipewright
