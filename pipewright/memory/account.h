#pragma once

#include <cstdint>

#include "pipewright/memory/meter.h"

namespace pipewright {

// The books behind MemoryMeter, kept with atomics alone: any thread, at any time, even while the
// process ends. A slot is one of MemoryMeter's, or kOutside; check_slot() says so to users.

void check_slot(int slot);
int take_account(int parent);
void give_back_account(int slot);
void charge(int slot, std::int64_t bytes);
void credit(int slot, std::int64_t bytes);
MemoryStats read_account(int slot);
void reset_account_peak(int slot);

}  // namespace pipewright
