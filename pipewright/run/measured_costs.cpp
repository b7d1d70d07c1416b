#include "pipewright/run/measured_costs.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "pipewright/cost/scale.h"
#include "pipewright/plan/stage_work.h"
#include "pipewright/recompute/modes.h"

namespace pipewright {
namespace {

/// The member of a StageCost that an instruction's time goes into; null for sends and receives.
double StageCost::*cost_of(Kind kind) {
  switch (kind) {
    case Kind::kForward: return &StageCost::forward;
    case Kind::kBackward: return &StageCost::backward;
    case Kind::kBackwardInput: return &StageCost::backward_input;
    case Kind::kBackwardWeight: return &StageCost::backward_weight;
    case Kind::kRecompute: return &StageCost::recompute;
    case Kind::kReduce: return &StageCost::reduce;
    case Kind::kStep: return &StageCost::step;
    default: return nullptr;
  }
}

/// What a stage's layers are stretched by.
struct Stretch {
  double forward = 1;
  double backward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double step = 1;
};

/// `measured` where nothing was expected says nothing about layers.
double ratio(double measured, double expected, double otherwise) {
  return measured > 0 && expected > 0 ? measured / expected : otherwise;
}

/// `runs_again`: the program has R.
Stretch stretch_of(const StageCost& measured, const StageCost& expected, bool runs_again) {
  Stretch stretch;
  // R is forwards once more.
  stretch.forward = runs_again ? ratio(measured.forward + measured.recompute,
                                       expected.forward + expected.recompute, 1)
                               : ratio(measured.forward, expected.forward, 1);
  const double halves = ratio(measured.backward_input + measured.backward_weight,
                              expected.backward_input + expected.backward_weight, stretch.forward);
  stretch.backward = ratio(measured.backward, expected.backward, halves);
  stretch.backward_input =
      ratio(measured.backward_input, expected.backward_input, stretch.backward);
  stretch.backward_weight =
      ratio(measured.backward_weight, expected.backward_weight, stretch.backward);
  stretch.step = ratio(measured.step, expected.step, 1);
  return stretch;
}

void stretch_layers(const Stretch& stretch, std::span<LayerCost> layers) {
  for (LayerCost& layer : layers) {
    layer.forward_seconds *= stretch.forward;
    layer.backward_seconds *= stretch.backward;
    layer.backward_input_seconds *= stretch.backward_input;
    layer.backward_weight_seconds *= stretch.backward_weight;
    layer.step_seconds *= stretch.step;
  }
}

/// Where the profile has no time for the update, as one made by hand, the measured is shared out.
void share_step(double seconds, std::span<LayerCost> layers) {
  for (LayerCost& layer : layers) layer.step_seconds = seconds / static_cast<double>(layers.size());
}

/// Of one layer a stage. A whole backward and its halves are told from each other.
LayerCost layer_of(const StageCost& cost, std::size_t stage) {
  LayerCost layer;
  layer.name = fmt::format("stage {}", stage);
  // A recomputed forward takes as long as a forward: both are known, their mean is used.
  layer.forward_seconds = cost.recompute > 0 ? (cost.forward + cost.recompute) / 2 : cost.forward;
  const double halves = cost.backward_input + cost.backward_weight;
  layer.backward_seconds = cost.backward > 0 ? cost.backward : halves;
  layer.backward_input_seconds = halves > 0 ? cost.backward_input : cost.backward / 2;
  layer.backward_weight_seconds = halves > 0 ? cost.backward_weight : cost.backward / 2;
  layer.step_seconds = cost.step;
  return layer;
}

MeasuredModel model_of_stages(const Plan& plan, const std::vector<StageCost>& costs) {
  MeasuredModel model;
  model.plan = plan;
  model.plan.sizes.assign(plan.sizes.size(), 1);
  model.plan.memory_bytes = 0;  // nothing is known of bytes
  if (!plan.operations.empty())
    model.plan.operations.assign(plan.sizes.size(), keep_checkpoints(1, {1}, false));
  model.plan.offload.assign(model.plan.operations.size(), 0);
  model.profile.model = plan.model;
  for (std::size_t stage = 0; stage < costs.size(); ++stage)
    model.profile.layers.push_back(layer_of(costs[stage], stage));
  return model;
}

}  // namespace

std::vector<StageCost> measured_costs(const Timeline& timeline, std::size_t num_stages) {
  std::vector<StageCost> sums(num_stages);
  std::vector<std::array<int, kAllKinds.size()>> counts(num_stages);
  for (const auto& rank : timeline.ranks) {
    for (const Span& span : rank) {
      const auto member = cost_of(span.kind);
      const auto stage = static_cast<std::size_t>(span.stage);
      if (member == nullptr || stage >= num_stages) continue;
      sums[stage].*member += span.duration();
      ++counts[stage][static_cast<std::size_t>(span.kind)];
    }
  }
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    for (const Kind kind : kAllKinds) {
      const int count = counts[stage][static_cast<std::size_t>(kind)];
      if (count > 0) sums[stage].*cost_of(kind) /= count;
    }
  }
  return sums;
}

MeasuredModel measured_model(const Plan& plan, const std::optional<Profile>& profile,
                             const Timeline& timeline) {
  const std::vector<StageCost> costs = measured_costs(timeline, plan.sizes.size());
  const double rows = static_cast<double>(plan.global_batch) / plan.micro_batches;
  MeasuredModel model;
  if (!profile) {
    model = model_of_stages(plan, costs);
  } else {
    model = {scale_profile(std::span(&*profile, 1), rows, plan.micro_batch_size), plan, true};
    const Program program = plan_program(plan);
    const std::vector<LayerRange> ranges = layer_ranges(plan.sizes);
    for (std::size_t s = 0; s < ranges.size(); ++s) {
      const auto& operations =
          plan.operations.empty() ? save_everything(ranges[s].size()) : plan.operations[s];
      const bool offload = !plan.operations.empty() && plan.offload[s] != 0;
      const StageCost expected =
          stage_cost(model.profile, ranges[s], program, static_cast<int>(s), operations, offload);
      const std::span<LayerCost> layers(model.profile.layers.data() + ranges[s].first,
                                        ranges[s].last - ranges[s].first);
      stretch_layers(stretch_of(costs[s], expected, !plan.operations.empty()), layers);
      if (!(expected.step > 0)) share_step(costs[s].step, layers);
    }
  }
  // Times are of `rows` samples; a profile has those of its micro_batch_size, and the update is of
  // no size.
  model.profile.micro_batch_size = plan.micro_batch_size;
  const double whole = plan.micro_batch_size / rows;
  stretch_layers({whole, whole, whole, whole, 1}, model.profile.layers);
  return model;
}

}  // namespace pipewright
