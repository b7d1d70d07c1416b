#pragma once

#include <cstdint>

#include "pipewright/config/config.h"
#include "pipewright/optim/optimizer.h"
#include "pipewright/train/strategy.h"

namespace pipewright::app {

/// The strategy of a config for a run of `num_updates` updates, as far as it does not depend on the
/// model: fit_strategy() of fit.h adds the rest. Throws InvalidArgument for what the config may ask
/// for and the program cannot do yet.
Strategy make_strategy(const config::Config& config, std::int64_t num_updates);

OptimizerFactory make_optimizer(const config::Config& config);

}  // namespace pipewright::app
