#include "pipewright/memory/account.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <mutex>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// A cache line each: neighbours belong to threads that run at the same time.
struct alignas(64) Account {
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<int> parent{MemoryMeter::kOutside};
  bool taken = false;  // under taken_mutex
};

// Constant-initialised and never destroyed, for tensors that live longer than main().
constinit std::array<Account, MemoryMeter::kMaxSlots + 1> accounts{};

std::mutex taken_mutex;

Account& account(int slot) { return accounts[static_cast<size_t>(slot + 1)]; }

}  // namespace

void check_slot(int slot) {
  if (slot >= MemoryMeter::kOutside && slot < MemoryMeter::kMaxSlots) return;
  throw InvalidArgument(
      "memory", fmt::format("there is no slot {}; use 0 to {}", slot, MemoryMeter::kMaxSlots - 1));
}

int take_account(int parent) {
  check_slot(parent);
  const std::lock_guard lock(taken_mutex);
  for (int slot = 0; slot < MemoryMeter::kMaxSlots; ++slot) {
    Account& candidate = account(slot);
    if (candidate.taken || candidate.live.load(std::memory_order_relaxed) != 0) continue;
    candidate.taken = true;
    candidate.peak.store(0, std::memory_order_relaxed);
    candidate.parent.store(parent, std::memory_order_relaxed);
    return slot;
  }
  throw InvalidArgument("memory", fmt::format("all {} slots are taken; end a trainer that is no "
                                              "longer used",
                                              MemoryMeter::kMaxSlots));
}

void give_back_account(int slot) {
  const std::lock_guard lock(taken_mutex);
  account(slot).taken = false;
}

// Relaxed: these are sums, they order nothing else.
void charge(int slot, std::int64_t bytes) {
  Account& to = account(slot);
  const std::int64_t live = to.live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t peak = to.peak.load(std::memory_order_relaxed);
  while (live > peak && !to.peak.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  const int parent = to.parent.load(std::memory_order_relaxed);
  if (parent != MemoryMeter::kOutside) charge(parent, bytes);
}

void credit(int slot, std::int64_t bytes) {
  Account& to = account(slot);
  to.live.fetch_sub(bytes, std::memory_order_relaxed);
  const int parent = to.parent.load(std::memory_order_relaxed);
  if (parent != MemoryMeter::kOutside) credit(parent, bytes);
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
