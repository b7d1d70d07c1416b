#pragma once

#include <optional>

#include "pipewright/config/config.h"
#include "pipewright/cost/profile.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/plan/plan.h"
#include "pipewright/train/strategy.h"

namespace pipewright::app {

/// Throws config::KeyError for what the model, or this machine, does not allow: a device or a
/// transport that is not there, more stages than layers, sizes and names that are not the model's.
void check_fits(const config::Config& config, const Sequence& model);

/// What of a strategy depends on the model: sizes of the stages, recompute within a budget.
/// `profile`: of one micro-batch, where one was measured. Throws config::KeyError for a budget that
/// is too small.
void fit_strategy(const config::Config& config, const Sequence& model,
                  const std::optional<Profile>& profile, Strategy* strategy);

/// The config with the plan's ranks, micro-batches, schedule, stages and, instead of its own
/// recompute, none: use_operations() sets the plan's. Throws InvalidArgument where the rest of the
/// config does not go with it: another batch, devices for other ranks.
config::Config planned_config(const config::Config& config, const Plan& plan);
void use_operations(const Plan& plan, Strategy* strategy);

/// Layers by stage so that the stage with the most bytes has as few as possible: parameters,
/// gradients, optimizer, and what each of the `in_flight` micro-batches (by stage) keeps.
std::vector<int> split_by_bytes(const Profile& profile, const std::vector<int>& in_flight);

}  // namespace pipewright::app
