#pragma once

#include <optional>
#include <vector>

#include "pipewright/cost/profile.h"
#include "pipewright/plan/plan.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// Mean times of a step's instructions by stage: of F, B, I, W, R for one micro-batch, of REDUCE
/// and STEP for the step. Bytes and links are 0.
std::vector<StageCost> measured_costs(const Timeline& timeline, std::size_t num_stages);

/// A model whose costs are those a run measured, and the plan that the run had of it.
struct MeasuredModel {
  Profile profile;
  Plan plan;
  bool knows_layers = false;  // else every stage is one layer, and nothing is known of bytes
};

/// The run's profile with the times of every stage's layers stretched so that the stage takes what
/// it took in `timeline`; without a profile, stages as they were measured.
MeasuredModel measured_model(const Plan& plan, const std::optional<Profile>& profile,
                             const Timeline& timeline);

}  // namespace pipewright
