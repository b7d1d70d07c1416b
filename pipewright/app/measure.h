#pragma once

#include <functional>
#include <optional>
#include <string>

#include "pipewright/app/make.h"
#include "pipewright/cost/profile.h"
#include "pipewright/train/grid.h"
#include "pipewright/train/plan_model.h"
#include "pipewright/train/strategy.h"

namespace pipewright::app {

using Note = std::function<void(const std::string&)>;

/// Whether a run of the config measures its layers first: to split them by time or bytes, or to fit
/// recompute into a budget.
bool measures(const config::Config& config);

/// Costs of the layers for one micro-batch of the config's, with the threads and on the device of
/// the first rank. Of several processes, those of `grid`, the first measures and the others are
/// told; once in a run. Nothing, with a note, where the memory of one device does not hold the
/// whole model.
std::optional<Profile> measure_layers(const config::Config& config, const Strategy& strategy,
                                      const Grid& grid, const DataSet& data, const Sequence& model,
                                      const Note& note);

/// Measures the config's model and looks for the best plans, see plan_model(). `request` says what
/// there is; ranks and batch are its own, the rest of the config counts: optimizer, precision,
/// device, threads.
PlannedModel plan_config(const config::Config& config, const PlanRequest& request);

}  // namespace pipewright::app
