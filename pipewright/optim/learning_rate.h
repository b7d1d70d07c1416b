#pragma once

#include <cstdint>
#include <functional>

namespace pipewright {

/// What the learning rates of the optimizer's groups are multiplied with at an update; updates
/// count from 0. Any function will do; these are the usual ones. All throw InvalidArgument for
/// numbers that make no sense.
using LearningRate = std::function<double(std::int64_t update)>;

LearningRate constant_rate();

/// From 1/updates up to 1 in `updates` equal steps, then `after` (which counts from its own 0).
LearningRate warm_up(std::int64_t updates, LearningRate after = constant_rate());

/// From 1 down to `floor` over `updates`, along a half cosine or a line; then `floor`.
LearningRate cosine_decay(std::int64_t updates, double floor = 0);
LearningRate linear_decay(std::int64_t updates, double floor = 0);

/// 1 for `updates` updates, then sqrt(updates / (update + 1)): the transformer's.
LearningRate inverse_sqrt_decay(std::int64_t updates);

/// Times `factor` after every `every` updates.
LearningRate step_decay(std::int64_t every, double factor);

}  // namespace pipewright
