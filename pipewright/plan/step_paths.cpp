#include "pipewright/plan/step_paths.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "pipewright/plan/step_clock.h"

// Every bound is the length of a chain of instructions of which each waits for the one before it:
// because it is next on the same rank, or because it needs the other's tensor. The step is no
// shorter.
//
// Through a stage s, on whose rank its instructions are x_1 .. x_n in this order:
//
//     enter at the first forward:    F of that micro-batch on the stages before s
//     enter at the first gradient:   F of that micro-batch on all stages, its gradients back to s +
//     1 then s's own instructions from there up to leave at the last forward:     F of that
//     micro-batch on the stages after s, its gradients back to s,
//                                    on s, and on the stages before
//     leave at the last gradient:    the gradients of that micro-batch on the stages before s
//     leave at the last of all (W):  nothing
//
// What lies before and after s counts with the same weight for each stage there, so the length
// depends on the first and last layer of s alone. Between entering and leaving, the rank may run
// other stages too: leaving them out keeps the bound valid. This holds for any order of
// instructions, so for any schedule.

namespace pipewright {
namespace {

bool makes_gradient(Kind kind) { return kind == Kind::kBackward || kind == Kind::kBackwardInput; }

/// The instructions of one stage in the order of its rank, and where its landmarks are.
struct StageWork {
  std::vector<std::int64_t>
      work_before;  // in units of the stage's cost; one more than instructions
  std::optional<std::size_t> first_gradient;
  std::optional<std::size_t> last_gradient;
  std::size_t first_forward = 0;
  std::size_t last_forward = 0;
  std::int64_t gradient_factor = 0;  // 0 where there is none

  std::int64_t work(std::size_t first, std::size_t last) const {
    return work_before[last + 1] - work_before[first];
  }
};

StageWork work_of(const std::vector<Instruction>& list, int stage) {
  StageWork work;
  work.work_before.push_back(0);
  bool any_forward = false;
  for (const Instruction at : list) {
    if (at.stage() != stage) continue;
    const std::size_t index = work.work_before.size() - 1;
    work.work_before.push_back(work.work_before.back() + cost_factor(at.kind()));
    if (at.kind() == Kind::kForward) {
      if (!any_forward) work.first_forward = index;
      any_forward = true;
      work.last_forward = index;
    } else if (makes_gradient(at.kind())) {
      if (!work.first_gradient) work.first_gradient = index;
      work.last_gradient = index;
      work.gradient_factor = cost_factor(at.kind());
    }
  }
  return work;
}

}  // namespace

StepPaths::StepPaths(const Program& program, std::vector<std::int64_t> sums)
    : sums_(std::move(sums)),
      paths_(program.placement.size()),
      rank_of_(program.placement.begin(), program.placement.end()),
      has_chunks_(program.num_chunks() > 1),
      loads_(program.ranks.size()),
      undecided_(program.ranks.size()) {
  for (std::size_t stage = 0; stage < paths_.size(); ++stage) add_paths_of(program, stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) add_rank(program, rank);
}

void StepPaths::add_paths_of(const Program& program, std::size_t stage) {
  const StageWork work = work_of(program.ranks[rank_of_[stage]], static_cast<int>(stage));
  const std::int64_t back = work.gradient_factor;
  work_ = work.work_before.back();  // the same for every stage: all micro-batches

  // From instruction `first` of the stage on, having paid `entry`; every way to leave.
  const auto leave = [&](std::size_t first, Path entry) {
    const auto add = [&](std::size_t last, Path exit) {
      if (last < first) return;
      keep({entry.before + exit.before, entry.own + work.work(first, last) + exit.own,
            entry.after + exit.after},
           stage);
    };
    add(work.last_forward, {back, back, 1 + back});
    if (work.last_gradient) add(*work.last_gradient, {back, 0, 0});
    add(work.work_before.size() - 2, {0, 0, 0});
  };
  leave(work.first_forward, {1, 0, 0});
  if (work.first_gradient) leave(*work.first_gradient, {1, 1, 1 + back});
}

void StepPaths::keep(Path path, std::size_t stage) {
  const auto covers = [](const Path& longer, const Path& shorter) {
    return longer.before >= shorter.before && longer.own >= shorter.own &&
           longer.after >= shorter.after;
  };
  std::vector<Path>& kept = paths_[stage];
  if (std::any_of(kept.begin(), kept.end(),
                  [&](const Path& other) { return covers(other, path); })) {
    return;
  }
  std::erase_if(kept, [&](const Path& other) { return covers(path, other); });
  kept.push_back(path);
}

void StepPaths::add_rank(const Program& program, std::size_t rank) {
  const std::vector<Instruction>& list = program.ranks[rank];
  const Instruction last = list.back();
  RankWork work;
  work.first_stage = static_cast<std::size_t>(list.front().stage());
  work.last_stage = static_cast<std::size_t>(last.stage());
  work.after_factor = makes_gradient(last.kind()) ? cost_factor(last.kind()) : 0;
  work.num_stages = static_cast<std::size_t>(std::count(rank_of_.begin(), rank_of_.end(), rank));
  ranks_.push_back(work);
}

std::int64_t StepPaths::through_stage(std::size_t stage, std::size_t begin, std::size_t end) const {
  const std::int64_t before = sums_[begin];
  const std::int64_t own = sums_[end] - before;
  const std::int64_t after = sums_.back() - sums_[end];
  std::int64_t longest = 0;
  for (const Path& path : paths_[stage]) {
    longest = std::max(longest, path.before * before + path.own * own + path.after * after);
  }
  return longest;
}

// A rank's work, and what must come before and after it, takes load + work * (the cost of its
// undecided stages). Those add up to the layers from `end` on, so some rank is at least as long as
// the level to which these would fill all ranks that have undecided stages.
std::int64_t StepPaths::over_ranks(std::span<const std::size_t> begins, std::size_t end) {
  const std::size_t num_decided = begins.size();
  const auto at_least = [&](std::size_t stage) {
    return sums_[stage < num_decided ? begins[stage] : end];
  };
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankWork& work = ranks_[rank];
    loads_[rank] = at_least(work.first_stage) + work.after_factor * at_least(work.last_stage);
    undecided_[rank] = work.num_stages;
  }
  for (std::size_t stage = 0; stage < num_decided; ++stage) {
    const std::size_t stage_end = stage + 1 < num_decided ? begins[stage + 1] : end;
    loads_[rank_of_[stage]] += work_ * (sums_[stage_end] - sums_[begins[stage]]);
    --undecided_[rank_of_[stage]];
  }

  std::int64_t longest = *std::max_element(loads_.begin(), loads_.end());
  std::size_t open = 0;  // ranks with undecided stages, moved to the front
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (undecided_[rank] > 0) loads_[open++] = loads_[rank];
  }
  std::sort(loads_.begin(), loads_.begin() + static_cast<std::ptrdiff_t>(open));
  std::int64_t filled = work_ * (sums_.back() - sums_[end]);
  for (std::size_t count = 1; count <= open; ++count) {
    filled += loads_[count - 1];
    const auto ranks = static_cast<std::int64_t>(count);
    const std::int64_t level = (filled + ranks - 1) / ranks;
    if (count == open || level <= loads_[count]) return std::max(longest, level);
  }
  return longest;
}

}  // namespace pipewright
