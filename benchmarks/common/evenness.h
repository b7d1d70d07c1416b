#pragma once

#include <functional>
#include <string>

namespace pipewright::bench {

/// What a core does some dozens of times for evenness_of_cores(). Both take less than a
/// millisecond.
using Work = std::function<void()>;
Work some_matrix_products();
Work some_arithmetic();  // arithmetic_in_registers()

/// The one that is like what the layers of a benchmark's --work do.
std::function<Work()> work_like(const std::string& layers);

/// How evenly fast the ranks' cores are just now: the slowest one's speed over that of the mean, 1
/// at best. Every rank's share of the cores does the same work of its own at the same time, for
/// some hundredths of a second; no engine takes part. A pipeline of equal stages has the speed of
/// its slowest core: about what is missing to 1 is a bubble that no schedule can fill. The work
/// should be of the kind the stages do: cores that are even in arithmetic that stays in registers
/// may differ by a factor of two in matrix products (benchmarks/pipeline/README.md).
double evenness_of_cores(int ranks, const std::function<Work()>& make_work);

/// Cores that are as even as that count as even.
inline constexpr double kEven = 0.97;

}  // namespace pipewright::bench
