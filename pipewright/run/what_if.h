#pragma once

#include <cstdint>

#include "pipewright/run/measured_costs.h"

namespace pipewright {

/// Simulates a run's step as it might have been: with another schedule, other micro-batches, other
/// stages, with or without recompute. Costs are those the run measured. Work is bounded, so that
/// the answer comes within seconds and is the same on every machine.
class WhatIf {
 public:
  explicit WhatIf(MeasuredModel model);

  /// The run as it was, simulated.
  const Plan& baseline() const { return baseline_; }
  bool knows_layers() const { return model_.knows_layers; }
  int num_layers() const { return static_cast<int>(model_.profile.layers.size()); }

  /// The same run with another schedule; stages as they were where their number stays, else the
  /// ones with the lightest bottleneck. The number of stages must not exceed that of layers.
  Plan with_schedule(Plan plan, const std::string& name, int chunks) const;

  /// The same batch in `count` micro-batches: times in proportion to their size.
  Plan with_micro_batches(Plan plan, int count) const;

  /// More micro-batches of the size they have: a batch `times` as large.
  Plan with_batch(Plan plan, int times) const;

  Plan without_recompute(Plan plan) const;
  Plan with_whole_recompute(Plan plan) const;  // every stage, from its input

  /// Layers moved over boundaries, one by one, as long as the step gets shorter and it fits.
  Plan with_best_split(Plan plan);

  /// Fills in what is predicted for the plan, and its operations where the run recomputes.
  Plan predicted(Plan plan) const;

  /// Within the memory that the run's plan had for a rank.
  bool fits(const Plan& plan) const;

 private:
  Plan predicted_as_is(Plan plan) const;
  void plan_recompute(Plan* plan) const;

  MeasuredModel model_;
  Plan baseline_;
  std::int64_t work_left_;  // of with_best_split, in instructions
};

std::int64_t most_bytes(const Plan& plan);  // of any rank, predicted

}  // namespace pipewright
