#pragma once

#include "pipewright/nn/sequence.h"

namespace pipewright::bench {

/// Layers that wait where others compute, as a CPU does for its accelerator: so a machine may have
/// fewer cores than ranks, and what the engine and the transport do is neither hidden behind
/// arithmetic nor held up by it. Each waits `wait` seconds in its forward, in the gradient of its
/// input and in that of its weights, hands its input on as it is, and has so many parameters.
Sequence make_waiting_model(int layers, double wait, std::int64_t parameters);

/// The same with arithmetic_in_registers() of so many rounds a row of the batch instead of waiting:
/// it keeps a core busy, and takes as long on one whose caches others use too.
Sequence make_register_model(int layers, std::int64_t rounds_a_row, std::int64_t parameters);

/// The same for a set time a row, by the clock: every core is busy and every stage as long as the
/// others even where cores are not equally fast.
Sequence make_busy_model(int layers, double seconds_a_row, std::int64_t parameters);

}  // namespace pipewright::bench
