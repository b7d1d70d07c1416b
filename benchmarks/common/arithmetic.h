#pragma once

#include <cstdint>

namespace pipewright::bench {

/// Multiplies and adds, as many at once as half keep a core's units busy, and touches no memory:
/// what others do in a core's caches, or on its second thread, slows it less than it slows matrix
/// products. A million rounds are about a millisecond.
void arithmetic_in_registers(std::int64_t rounds);

}  // namespace pipewright::bench
