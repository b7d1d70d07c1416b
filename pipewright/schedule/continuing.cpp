#include "pipewright/schedule/continuing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/schedule/makers.h"

namespace pipewright {

// 3 ranks, mini-batches of 1 micro-batch, the first five and a drain; backward takes as long as
// forward. `|` is an update (STEP), beside each micro-batch the version that pipedream uses:
//
//     rank 0  F0@0  .   F1@0  .   F2@0 B0@0|F3@1 B1@0|F4@2 B2@0|   . B3@1|   . B4@2|
//     rank 1   .   F0@0  .   F1@0 B0@0|F2@1 B1@0|F3@2 B2@1|F4@3 B3@2|   . B4@3|
//     rank 2   .    .   F0@0 B0@0|F1@1 B1@1|F2@2 B2@2|F3@3 B3@3|F4@4 B4@4|
//
// 1f1b that never empties the pipeline: rank r of K is K-1-r micro-batches ahead with its forwards
// of its backwards, mini-batch after mini-batch, and no rank idles but at the start and in a drain.
// A backward must use the weights of its forward, and these have changed in between: so a rank
// keeps the versions that micro-batches under way need.
//
// pipedream      a forward uses the newest version of its rank: later ranks have newer ones
//                (vertical_sync: that of rank 0 everywhere).
//                PipeDream: Generalized Pipeline Parallelism for DNN Training (SOSP 2019).
// pipedream-2bw  a forward uses, on all ranks, the version before the newest that all ranks will
//                have: of group t (mini-batches up to an update) version t-1. Two versions are
//                enough where every group has at least K micro-batches.
//                Memory-Efficient Pipeline-Parallel DNN Training (ICML 2021).
//
// With K-1-r micro-batches a gradient comes just when its turn is, if every stage always takes the
// same time and links take none. Whatever takes longer once is waited for by all, and the time is
// never made up for.
//
// eager-         rank r is 2(K-1-r) ahead, as in eager-1f1b: what a rank waits for has come before
//                its turn, so ranks wait only for one that is slower than they for long, and not
//                for links whose latency is below a stage's time. 2(K-r)-1 micro-batches are held;
//                pipedream's forwards are of older versions then, unless a mini-batch has as many;
//                two versions stay enough, and compute the same, where every group has 2K-1.

namespace {

const ScheduleInfo& asynchronous_schedule(const std::string& name) {
  const ScheduleInfo& info = find_schedule(name);
  if (info.asynchronous) return info;
  throw InvalidArgument(
      "schedule", fmt::format("'{}' does not go on from one mini-batch to the next; pipedream "
                              "and pipedream-2bw do",
                              name));
}

}  // namespace

ContinuingSchedule::ContinuingSchedule(ContinuingSpec spec)
    : spec_(std::move(spec)), info_(asynchronous_schedule(spec_.name)) {
  if (spec_.ranks < 1 || spec_.ranks > Instruction::kMaxStage) {
    throw InvalidArgument("schedule",
                          fmt::format("cannot run on {} ranks; use 1 or more", spec_.ranks));
  }
  if (info_.two_versions && spec_.vertical_sync) {
    throw InvalidArgument("schedule",
                          fmt::format("{} uses the same version on all stages as it is; leave out "
                                      "vertical sync, or use pipedream",
                                      spec_.name));
  }
  ranks_.resize(static_cast<std::size_t>(spec_.ranks));
}

/// By how many forwards a rank is ahead of its backwards.
std::int64_t ContinuingSchedule::ahead(std::size_t rank) const {
  return info_.lead * static_cast<std::int64_t>(ranks_.size() - 1 - rank);
}

int ContinuingSchedule::num_carried() const { return static_cast<int>(under_way_.size()); }

ContinuingSchedule::UnderWay& ContinuingSchedule::under_way(std::int64_t micro_batch) {
  return under_way_[static_cast<std::size_t>(micro_batch - first_)];
}

/// Of those with two versions: what the micro-batches of the group that is being filled use.
int ContinuingSchedule::version_of_group() const {
  return std::max(num_updates_ - 1, updates_at_drain_);
}

int ContinuingSchedule::forward_version(std::size_t rank, const UnderWay& micro_batch) const {
  if (info_.two_versions) return micro_batch.same_version;
  if (spec_.vertical_sync && rank > 0) return micro_batch.versions.front();
  return ranks_[rank].newest;
}

void ContinuingSchedule::write_forward(std::size_t rank, std::int64_t micro_batch, Program* piece) {
  UnderWay& state = under_way(micro_batch);
  state.versions.push_back(forward_version(rank, state));
  piece->ranks[rank].emplace_back(Kind::kForward, Stage{static_cast<int>(rank)},
                                  MicroBatch{static_cast<int>(micro_batch - first_)});
  piece->versions[rank].push_back(state.versions.back());
}

/// The next backward of a rank, and the update that it completes.
void ContinuingSchedule::write_backward(std::size_t rank, Program* piece) {
  RankState& own = ranks_[rank];
  const std::int64_t micro_batch = own.backwards++;
  const Stage stage{static_cast<int>(rank)};
  const UnderWay& state = under_way(micro_batch);
  piece->ranks[rank].emplace_back(Kind::kBackward, stage,
                                  MicroBatch{static_cast<int>(micro_batch - first_)});
  piece->versions[rank].push_back(state.versions[rank]);
  if (!state.completes_update) return;
  piece->ranks[rank].emplace_back(Kind::kStep, stage);
  piece->versions[rank].push_back(++own.newest);
}

Program ContinuingSchedule::begin_piece() const {
  Program piece;
  piece.schedule = spec_.name;
  piece.placement = looped_placement(spec_.ranks, 1);
  piece.ranks.resize(ranks_.size());
  piece.versions.resize(ranks_.size());
  piece.carried.micro_batches = num_carried();
  for (const RankState& rank : ranks_) {
    if (num_carried() > 0)
      piece.carried.backwards.push_back(static_cast<int>(rank.backwards - first_));
  }
  return piece;
}

/// What a rank needs after all that is written so far: for its backwards to come, and for the next
/// forward.
int ContinuingSchedule::oldest_needed(std::size_t rank) const {
  int oldest = ranks_[rank].newest;
  if (info_.two_versions) oldest = std::min(oldest, version_of_group());
  if (spec_.vertical_sync) oldest = std::min(oldest, ranks_.front().newest);
  const auto done = static_cast<std::size_t>(ranks_[rank].backwards - first_);
  for (std::size_t m = done; m < under_way_.size(); ++m) {
    oldest = std::min(oldest, under_way_[m].versions[rank]);
  }
  return oldest;
}

void ContinuingSchedule::finish_piece(Program* piece) {
  piece->num_micro_batches = num_carried();
  while (!under_way_.empty() && first_ < ranks_.front().backwards) {
    under_way_.pop_front();
    ++first_;
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    piece->keeps.push_back(oldest_needed(rank));
  }
  piece->open = num_carried() > 0;
}

Program ContinuingSchedule::next(int micro_batches, bool updates) {
  if (micro_batches < 1 || micro_batches > Instruction::kMaxMicroBatch - ahead(0) - 1) {
    throw InvalidArgument(
        "schedule",
        fmt::format("cannot run a mini-batch of {} micro-batches; use 1 or more", micro_batches));
  }
  const std::int64_t group = merged_ + micro_batches;
  const int least = least_between_updates(spec_.name, spec_.ranks);
  const bool first = num_updates_ == updates_at_drain_;  // the rest of it may be from before
  if (updates && group < least && !first) {
    throw InvalidArgument(
        "schedule",
        fmt::format("{} would update after {} micro-batches, but with {} ranks it "
                    "needs at least {} between updates; use more micro-batches a mini-batch, merge "
                    "more mini-batches into an update, or use fewer ranks or pipedream",
                    spec_.name, group, spec_.ranks, least));
  }
  Program piece = begin_piece();
  for (int m = 0; m < micro_batches; ++m) {
    under_way_.push_back({.completes_update = updates && m + 1 == micro_batches,
                          .same_version = version_of_group(),
                          .versions = {}});
  }
  const std::int64_t begin = num_forwards_;
  num_forwards_ += micro_batches;
  merged_ = updates ? 0 : group;
  num_updates_ += updates ? 1 : 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::int64_t m = begin; m < num_forwards_; ++m) {
      write_forward(rank, m, &piece);
      if (m - ahead(rank) >= drained_at_) write_backward(rank, &piece);
    }
  }
  finish_piece(&piece);
  return piece;
}

Program ContinuingSchedule::drain() {
  Program piece = begin_piece();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    while (ranks_[rank].backwards < num_forwards_) write_backward(rank, &piece);
  }
  drained_at_ = num_forwards_;
  updates_at_drain_ = num_updates_;
  finish_piece(&piece);
  return piece;
}

Program join_pieces(const std::vector<Program>& pieces) {
  Program whole;
  for (const Program& piece : pieces) {
    const int first = whole.num_micro_batches - piece.carried.micro_batches;
    whole.num_micro_batches = first + piece.num_micro_batches;
    whole.ranks.resize(piece.ranks.size());
    whole.versions.resize(piece.ranks.size());
    for (std::size_t rank = 0; rank < piece.ranks.size(); ++rank) {
      for (const Instruction i : piece.ranks[rank]) {
        const int micro_batch = is_once_a_step(i.kind()) ? -1 : first + i.micro_batch();
        whole.ranks[rank].emplace_back(i.kind(), Stage{i.stage()}, MicroBatch{micro_batch});
      }
      const auto& versions = piece.versions[rank];
      whole.versions[rank].insert(whole.versions[rank].end(), versions.begin(), versions.end());
    }
  }
  if (pieces.empty()) return whole;
  whole.schedule = pieces.back().schedule;
  whole.placement = pieces.back().placement;
  whole.keeps = pieces.back().keeps;
  whole.open = pieces.back().open;
  return whole;
}

Program make_continuing(const ScheduleSpec& spec) {
  ContinuingSchedule schedule(
      {.name = spec.name, .ranks = spec.ranks, .vertical_sync = spec.vertical_sync});
  std::vector<Program> pieces;
  for (int i = 1; i <= spec.mini_batches; ++i) {
    pieces.push_back(schedule.next(spec.micro_batches, i % spec.updates_every == 0));
  }
  pieces.push_back(schedule.drain());
  return join_pieces(pieces);
}

}  // namespace pipewright
