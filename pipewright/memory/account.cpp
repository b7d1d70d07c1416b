#include "pipewright/memory/account.h"

#include <fmt/format.h>

#include <array>
#include <atomic>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// A cache line each: neighbours belong to threads that run at the same time.
struct alignas(64) Account {
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> peak{0};
};

// Constant-initialised and never destroyed, for tensors that live longer than main().
constinit std::array<Account, MemoryMeter::kMaxSlots + 1> accounts{};

Account& account(int slot) { return accounts[static_cast<size_t>(slot + 1)]; }

}  // namespace

void check_slot(int slot) {
  if (slot >= MemoryMeter::kOutside && slot < MemoryMeter::kMaxSlots) return;
  throw InvalidArgument(
      "memory", fmt::format("there is no slot {}; use 0 to {}", slot, MemoryMeter::kMaxSlots - 1));
}

// Relaxed: these are sums, they order nothing else.
void charge(int slot, std::int64_t bytes) {
  Account& to = account(slot);
  const std::int64_t live = to.live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t peak = to.peak.load(std::memory_order_relaxed);
  while (live > peak && !to.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

void credit(int slot, std::int64_t bytes) {
  account(slot).live.fetch_sub(bytes, std::memory_order_relaxed);
}

MemoryStats read_account(int slot) {
  const Account& from = account(slot);
  return {from.live.load(std::memory_order_relaxed), from.peak.load(std::memory_order_relaxed)};
}

void reset_account_peak(int slot) {
  Account& of = account(slot);
  of.peak.store(of.live.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace pipewright
