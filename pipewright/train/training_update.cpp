// The part of Training that runs on the threads of the ranks: STEP.

#include <fmt/format.h>

#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/train/training.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

double Training::update(int stage) {
  RankRunner& rank = pipeline_.rank_of(stage);
  const int number = shared_.layout.rank_of(stage);
  double waited = 0;
  if (stage == rank.stages().front()->stage()) waited = prepare_update(rank, number);
  if (skips_[static_cast<std::size_t>(number)] != 0) {
    updater_.clear(stage);
    return waited;
  }
  std::optional<double> rate;
  if (strategy_.learning_rate) rate = strategy_.learning_rate(num_updates_);
  updater_.step(stage, rate);
  return waited;
}

/// Before a rank's first STEP: the weight of the loss and the uses of tied weights are complete
/// only when all ranks have come here. Returns how long it waited.
double Training::prepare_update(RankRunner& rank, int number) {
  if (&rank == &pipeline_.rank_of(last_stage_->stage()) && !scaler_) check_loss();
  announce_gradients(rank, number);
  double waited = meet();
  wait_for_gradients(rank, number);
  const double merged = strategy_.merge_average ? strategy_.merge_steps : 1;
  const double factor = weight_correction() / (merged * loss_scale_);
  Pipeline::on_stages_of(rank, [&](StageRunner& stage) {
    updater_.finish_gradients(stage.stage(), factor);
    if (strategy_.check_finite && !scaler_) updater_.check_finite(stage.stage());
  });
  skips_[static_cast<std::size_t>(number)] = limit_gradients(rank, &waited) ? 1 : 0;
  return waited;
}

double Training::meet() {
  const auto start = Clock::now();
  pipeline_.meeting().wait();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// On GPUs a meeting of threads says that backwards have been launched; the events say when they
/// are done. Only tied weights have gradients that another rank reads.
void Training::announce_gradients(RankRunner& rank, int number) {
  auto& events = announced_[static_cast<std::size_t>(number)];
  events.clear();
  if (shared_.tied_uses.empty()) return;
  for (const auto& stream : rank.streams()) {
    if (!stream->on_gpu()) continue;
    events.emplace_back(stream->device().type());
    events.back().record(stream->stream());
  }
}

void Training::wait_for_gradients(RankRunner& rank, int number) {
  for (std::size_t other = 0; other < announced_.size(); ++other) {
    if (static_cast<int>(other) == number) continue;
    for (const c10::Event& event : announced_[other]) {
      for (const auto& stream : rank.streams()) {
        if (stream->on_gpu()) event.block(stream->stream());
      }
    }
  }
}

/// Clips by the norm over all ranks, and finds what overflowed. True: the step is to be skipped.
bool Training::limit_gradients(RankRunner& rank, double* waited) {
  if (strategy_.clip_norm == 0 && !scaler_) return false;
  Pipeline::on_stages_of(rank, [&](StageRunner& stage) { updater_.measure(stage.stage()); });
  *waited += meet();
  const double norm = updater_.total_norm();
  *waited += meet();  // everybody has read the norms before a next step writes them
  if (&rank == pipeline_.ranks()[0].get()) gradient_norm_ = norm;
  if (!std::isfinite(norm)) {
    if (scaler_) return true;
    throw StageError("trainer", fmt::format("the norm of the gradients is {}; set check_finite to "
                                            "learn which layer made the first such value",
                                            norm));
  }
  const double factor = strategy_.clip_norm / (norm + 1e-6);
  if (strategy_.clip_norm > 0 && factor < 1) {
    Pipeline::on_stages_of(rank,
                           [&](StageRunner& stage) { updater_.scale(stage.stage(), factor); });
  }
  return false;
}

}  // namespace pipewright
