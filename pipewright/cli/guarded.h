#pragma once

#include <functional>

namespace pipewright::cli {

inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

/// The exit status of a program: what `work` returns. What it throws is told in one line on
/// standard error; a mistake of the user's is kUsage, any other failure kFailure.
int guarded(const std::function<int()>& work);

}  // namespace pipewright::cli
