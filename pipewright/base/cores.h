#pragma once

#include <string>
#include <vector>

namespace pipewright {

/// Names the cores of a rank that `pipewright launch` started, as `4,5`.
inline constexpr const char* kCoresVariable = "PIPEWRIGHT_CORES";

/// Those that the calling thread may use, in ascending order; none where that is not known.
std::vector<int> usable_cores();

/// Those of `part` where cores are shared out over `parts`: next to each other, as many for each.
/// None where there are fewer cores than parts.
std::vector<int> share_of_cores(const std::vector<int>& cores, int part, int parts);

/// What kCoresVariable says: the part of a machine's cores that is this process's among others that
/// were started with it. None where it is not set. Throws InvalidArgument where it is not a list of
/// cores.
std::vector<int> launched_cores();

/// Keeps the calling thread, and those it starts, on these cores. Does nothing for none, nor where
/// the system refuses.
void pin_thread(const std::vector<int>& cores);

}  // namespace pipewright
