#include "pipewright/optim/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

void check_updates(std::int64_t updates, const char* what) {
  if (updates >= 1) return;
  throw InvalidArgument("optim", fmt::format("{} over {} updates; use 1 or more", what, updates));
}

void check_factor(double factor, const char* what) {
  if (factor >= 0 && factor <= 1) return;
  throw InvalidArgument("optim", fmt::format("{} = {}; use 0 to 1", what, factor));
}

/// How far `update` is on its way, 0 to 1.
double way(std::int64_t update, std::int64_t updates) {
  return std::clamp(static_cast<double>(update) / static_cast<double>(updates), 0.0, 1.0);
}

}  // namespace

LearningRate constant_rate() {
  return [](std::int64_t) { return 1.0; };
}

LearningRate warm_up(std::int64_t updates, LearningRate after) {
  check_updates(updates, "a warm-up");
  return [updates, after = std::move(after)](std::int64_t update) {
    return update < updates ? way(update + 1, updates) : after(update - updates);
  };
}

LearningRate cosine_decay(std::int64_t updates, double floor) {
  check_updates(updates, "a decay");
  check_factor(floor, "floor");
  return [updates, floor](std::int64_t update) {
    const double cosine = std::cos(std::numbers::pi * way(update, updates));
    return floor + (1 - floor) * (1 + cosine) / 2;
  };
}

LearningRate linear_decay(std::int64_t updates, double floor) {
  check_updates(updates, "a decay");
  check_factor(floor, "floor");
  return [updates, floor](std::int64_t update) { return 1 - (1 - floor) * way(update, updates); };
}

LearningRate inverse_sqrt_decay(std::int64_t updates) {
  check_updates(updates, "a decay");
  return [updates](std::int64_t update) {
    const auto after = static_cast<double>(std::max(update + 1, updates));
    return std::sqrt(static_cast<double>(updates) / after);
  };
}

LearningRate step_decay(std::int64_t every, double factor) {
  check_updates(every, "a step");
  check_factor(factor, "factor");
  return [every, factor](std::int64_t update) {
    const std::int64_t times = update / every;
    return std::pow(factor, static_cast<double>(times));
  };
}

}  // namespace pipewright
