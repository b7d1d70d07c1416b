#include "pipewright/train/lane_step.h"

#include <fmt/format.h>

#include <thread>

#include "pipewright/base/error.h"
#include "pipewright/base/words.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

int threads_of_lane(const Strategy& strategy) {
  if (strategy.threads_per_rank > 0) return strategy.threads_per_rank;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / strategy.lanes);
}

}  // namespace

void check_lanes(const Strategy& s) {
  if (s.lanes == 0) return;
  if (s.lanes < 0) refuse(fmt::format("lanes = {}; use 1 or more, or 0 for none", s.lanes));
  if (s.lanes > s.micro_batches)
    refuse(fmt::format("{} lanes for {} micro-batches; use {} or fewer", s.lanes, s.micro_batches,
                       s.micro_batches));
  if (s.ranks != 1 || s.chunks > 1 || s.replicas != 1 || s.transport != "threads")
    refuse(
        fmt::format("lanes = {} beside ranks = {}, chunks = {}, replicas = {}, transport = "
                    "\"{}\"; lanes run the whole model in one process",
                    s.lanes, s.ranks, s.chunks, s.replicas, s.transport));
  if (s.recompute != RecomputeMode::kNone)
    refuse("lanes with recompute: they keep what the backward needs; leave one of them out");
}

LaneStep::LaneStep(SharedModel* shared, const Strategy& strategy, Pipeline* pipeline)
    : shared_(shared), pipeline_(pipeline) {
  const StageRunner& stage = *pipeline->ranks().front()->stages().front();
  lanes_ = std::make_unique<Lanes>(*shared->model, shared->loss,
                                   LaneOptions{.lanes = strategy.lanes,
                                               .threads = threads_of_lane(strategy),
                                               .device = shared->layout.device_of(0),
                                               .memory_slot = stage.place().memory_slot});
}

/// Where the updater looks for a parameter's gradient.
torch::Tensor& LaneStep::place_of(const torch::Tensor& parameter) {
  for (const auto& use : shared_->tied_uses) {
    if (use->parameter.is_same(parameter)) return use->gradient;
  }
  return parameter.mutable_grad();
}

void LaneStep::run(const StepInput& input, Timeline* timeline) {
  LaneResult made;
  Tensors so_far;  // where gradients are merged: sums go on micro-batch by micro-batch
  for (const auto& [name, parameter] : lanes_->parameters()) so_far.push_back(place_of(parameter));
  const auto start = std::chrono::steady_clock::now();
  for (const auto& stream : pipeline_->ranks().front()->streams()) stream->wait_for_current();
  try {
    // On the rank's thread: the lanes are its intra-op threads, as far as it has them.
    pipeline_->on_every_stage(
        [&](StageRunner& /*stage*/) { made = lanes_->run(input, start, so_far); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw StageError("trainer", fmt::format("a micro-batch failed: {}", first_line(error.what())));
  }
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < made.gradients.size(); ++p) {
    if (made.gradients[p].defined())
      place_of(lanes_->parameters()[p].second) = std::move(made.gradients[p]);
  }
  std::map<int, LossValue> losses;
  for (std::size_t m = 0; m < made.losses.size(); ++m)
    losses[static_cast<int>(m)] = std::move(made.losses[m]);
  pipeline_->ranks().front()->stages().front()->set_losses(std::move(losses));
  timeline->ranks = std::move(made.spans);
  timeline->memory.resize(timeline->ranks.size());
}

void LaneStep::step(const std::function<void(int stage)>& update) {
  for (const auto& stream : pipeline_->ranks().front()->streams()) stream->wait_for_current();
  pipeline_->on_every_stage([&](StageRunner& stage) { update(stage.stage()); });
}

}  // namespace pipewright
