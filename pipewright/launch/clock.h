#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace pipewright::launch {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Seconds = std::chrono::duration<double>;

inline TimePoint after(TimePoint now, Seconds wait) {
  return now + std::chrono::duration_cast<Clock::duration>(wait);
}

/// The earlier of two moments, where "none" is never.
inline std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

}  // namespace pipewright::launch
