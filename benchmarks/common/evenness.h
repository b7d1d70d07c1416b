#pragma once

namespace pipewright::bench {

/// How evenly fast the ranks' cores are just now: the slowest one's speed over that of the mean, 1
/// at best. Every rank's share of the cores does arithmetic in registers at the same time, for some
/// hundredths of a second; no memory, no library, no engine takes part. A pipeline of equal stages
/// has the speed of its slowest core: about what is missing to 1 is a bubble that no schedule can
/// fill.
double evenness_of_cores(int ranks);

/// Cores that are as even as that count as even.
inline constexpr double kEven = 0.97;

}  // namespace pipewright::bench
