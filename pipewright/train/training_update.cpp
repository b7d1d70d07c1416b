// The part of Training that runs on the threads of the ranks: STEP.

#include <fmt/format.h>

#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/train/training.h"

namespace pipewright {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

double Training::update(int stage, int version) {
  if (version >= 0) return update_delayed(stage, version);
  RankRunner& rank = pipeline_.rank_of(stage);
  const int number = shared_.layout.rank_of(stage);
  double waited = 0;
  if (stage == rank.stages().front()->stage()) waited = prepare_update(rank, number);
  if (skips_[static_cast<std::size_t>(number)] != 0) {
    updater_.clear(stage);
    return waited;
  }
  step_optimizer(stage, num_updates_);
  if (stage == rank.stages().back()->stage()) spread_tied(number);
  return waited;
}

void Training::step_optimizer(int stage, std::int64_t number) {
  std::optional<double> rate;
  if (strategy_.learning_rate) rate = strategy_.learning_rate(number);
  updater_.step(stage, rate);
  if (!replicas_ || !strategy_.shard_optimizer) return;
  for (int replica = 0; replica < grid_.replicas; ++replica) {
    const Tensors share = updater_.shard(stage, replica);
    if (!share.empty()) replicas_->broadcast(share, replica);
  }
}

/// Before a rank's first STEP: the weight of the loss and the uses of tied weights are complete
/// only when all ranks have come here. Returns how long it waited.
double Training::prepare_update(RankRunner& rank, int number) {
  const int last = shared_.layout.rank_of(shared_.layout.num_stages() - 1);
  const bool has_loss = number == last;
  if (has_loss && !scaler_) check_loss();
  announce_gradients(rank, number);
  double waited = 0;
  const auto weights =
      share(number, Sharing::Topic::kWeights,
            has_loss ? std::vector{weight_here()} : std::vector<double>(), &waited);
  wait_for_gradients(rank, number);
  gather_tied(number);
  const double merged = strategy_.merge_average ? strategy_.merge_steps : 1;
  double weight = weights[static_cast<std::size_t>(last)].at(0);
  if (replicas_) weight = replicas_->sum({weight})[0];
  const double factor = weight_correction(weight) / (merged * loss_scale_);
  Pipeline::on_stages_of(rank, [&](StageRunner& stage) {
    finish_gradients(stage.stage(), factor);
    if (strategy_.check_finite && !scaler_) updater_.check_finite(stage.stage());
  });
  skips_[static_cast<std::size_t>(number)] = limit_gradients(rank, number, &waited) ? 1 : 0;
  return waited;
}

std::vector<std::vector<double>> Training::share(int number, Sharing::Topic topic,
                                                 std::vector<double> numbers, double* waited) {
  const auto start = Clock::now();
  auto all = pipeline_.sharing().share(number, topic, std::move(numbers));
  *waited += std::chrono::duration<double>(Clock::now() - start).count();
  return all;
}

void Training::finish_gradients(int stage, double factor) {
  updater_.sum_tied(stage);
  if (replicas_) reducers_[static_cast<std::size_t>(stage)]->finish();
  updater_.scale(stage, factor);
}

/// A tied weight is one tensor in one process, and its owner finds the gradients of all uses. Of
/// several processes each has a copy: the others' gradients come here, new values go there.
void Training::gather_tied(int number) {
  if (grid_.one_process()) return;
  for (const TiedRoute& route : shared_.tied_routes) {
    const MessageKey key{MessageKind::kTiedGradient, route.owner, 0, route.number};
    TiedUse& use = *shared_.tied_uses[static_cast<std::size_t>(route.number)];
    const int from = shared_.layout.rank_of(route.user);
    const int to = shared_.layout.rank_of(route.owner);
    if (from == number && to != number)
      pipeline_.transport().send(to, key, {{std::exchange(use.gradient, {})}});
    if (to == number && from != number)
      use.gradient = pipeline_.transport().receive(number, from, key).tensors[0];
  }
}

void Training::spread_tied(int number) {
  if (grid_.one_process()) return;
  const torch::NoGradGuard no_grad;
  for (const TiedRoute& route : shared_.tied_routes) {
    if (!route.has_value) continue;
    const MessageKey key{MessageKind::kTiedValue, route.user, 0, route.number};
    const torch::Tensor& parameter =
        shared_.tied_uses[static_cast<std::size_t>(route.number)]->parameter;
    const int from = shared_.layout.rank_of(route.owner);
    const int to = shared_.layout.rank_of(route.user);
    if (from == number && to != number)
      pipeline_.transport().send(to, key, {{parameter.detach().clone()}});
    if (to == number && from != number)
      parameter.detach().copy_(pipeline_.transport().receive(number, from, key).tensors[0]);
  }
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

/// In parameter order, whatever the partition.
double Training::total_norm(const std::vector<std::vector<double>>& squares) const {
  std::vector<std::size_t> next(squares.size());
  double sum = 0;
  for (int stage = 0; stage < shared_.layout.num_stages(); ++stage) {
    const auto rank = static_cast<std::size_t>(shared_.layout.rank_of(stage));
    for (auto left = squares[rank][next[rank]++]; left > 0; --left)
      sum += squares[rank][next[rank]++];
  }
  return std::sqrt(sum);
}

/// Clips by the norm over all ranks, and finds what overflowed. True: the step is to be skipped.
bool Training::limit_gradients(RankRunner& rank, int number, double* waited) {
  if (strategy_.clip_norm == 0 && !scaler_) return false;
  Pipeline::on_stages_of(rank, [&](StageRunner& stage) { updater_.measure(stage.stage()); });
  std::vector<double> squares;  // of each stage how many, then those
  for (const auto& stage : rank.stages()) {
    const auto& own = updater_.squared_norms(stage->stage());
    squares.push_back(static_cast<double>(own.size()));
    squares.insert(squares.end(), own.begin(), own.end());
  }
  const double norm = total_norm(share(number, Sharing::Topic::kNorms, std::move(squares), waited));
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
