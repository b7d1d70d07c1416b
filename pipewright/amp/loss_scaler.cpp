#include "pipewright/amp/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

void check(bool holds, const char* name, double value, const char* use) {
  if (holds) return;
  throw InvalidArgument("amp", fmt::format("{} = {}; use {}", name, value, use));
}

}  // namespace

LossScaler::LossScaler(const LossScaling& options) : options_(options) {
  check(std::isfinite(options.init_scale) && options.init_scale >= 1, "init_scale",
        options.init_scale, "1 or more");
  check(std::isfinite(options.growth) && options.growth >= 1, "growth", options.growth,
        "1 or more");
  check(options.growth_interval >= 1, "growth_interval", options.growth_interval, "1 or more");
  check(options.backoff > 0 && options.backoff <= 1, "backoff", options.backoff,
        "more than 0 and at most 1");
  check(options.backoff_interval >= 1, "backoff_interval", options.backoff_interval, "1 or more");
  state_.scale = options.init_scale;
}

void LossScaler::update(bool overflow) {
  int& in_a_row = overflow ? state_.num_bad : state_.num_good;
  (overflow ? state_.num_good : state_.num_bad) = 0;
  if (++in_a_row < (overflow ? options_.backoff_interval : options_.growth_interval)) return;
  in_a_row = 0;
  const double scale = state_.scale * (overflow ? options_.backoff : options_.growth);
  // The scale multiplies a float32 loss.
  state_.scale = std::clamp(scale, 1.0, double{std::numeric_limits<float>::max()});
}

}  // namespace pipewright
