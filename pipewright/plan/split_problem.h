#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "pipewright/partition/whole_costs.h"
#include "pipewright/plan/step_clock.h"
#include "pipewright/plan/step_paths.h"

namespace pipewright {

/// What a split is judged by, in this order; less is better. Of a part of a split: what the whole
/// has at least.
struct SplitScore {
  std::int64_t time = 0;
  std::int64_t bottleneck = 0;
  uint128 imbalance = 0;  // squared stage costs, then squared layer counts

  friend auto operator<=>(const SplitScore&, const SplitScore&) =
      default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 takes the compiler's own 0 for ours
};

/// Of two parts together.
inline SplitScore join(const SplitScore& a, const SplitScore& b) {
  return {std::max(a.time, b.time), std::max(a.bottleneck, b.bottleneck),
          a.imbalance + b.imbalance};
}

struct Split {
  std::vector<std::size_t> begins;  // by stage: its first layer
  SplitScore score;
};

/// Layers to split for the least step time of a Program. Counts the work spent on it, so that a
/// search can stop at the same place on every machine.
class SplitProblem {
 public:
  /// Layers' costs are whole numbers. Times and squares fit if they add up to at most most_total().
  SplitProblem(const Program& program, const std::vector<std::uint64_t>& layers);
  static std::uint64_t most_total(const Program& program, std::size_t num_layers);

  std::size_t num_layers() const { return sums_.size() - 1; }
  std::size_t num_stages() const { return num_stages_; }
  /// The last layer + 1 of a stage that leaves one for each later stage.
  std::size_t last_end(std::size_t stage) const { return num_layers() - (num_stages_ - 1 - stage); }

  /// Of a whole split: exact.
  SplitScore score(const std::vector<std::size_t>& begins);
  /// Of one stage of layers begin..end-1: what every split with it has at least.
  SplitScore stage_score(std::size_t stage, std::size_t begin, std::size_t end);
  /// What a split that begins so has at least, by the work of each rank. See StepPaths::over_ranks.
  std::int64_t time_over_ranks(std::span<const std::size_t> begins, std::size_t end);
  bool has_chunks() const { return paths_.has_chunks(); }

  /// Work so far, in units of about one simulated instruction (2 ns or so).
  std::int64_t work() const { return work_; }
  /// What one call of stage_score() adds to it; time_over_ranks() that for each stage.
  static constexpr std::int64_t kWorkOfStage = 8;
  /// What one call of score() adds to it.
  std::int64_t work_of_score() const;

 private:
  SplitScore without_time(std::size_t begin, std::size_t end) const;

  std::vector<std::int64_t> sums_;
  std::size_t num_stages_;
  int count_bits_;  // 2^count_bits_ is more than any sum of squared layer counts
  StepClock clock_;
  StepPaths paths_;
  std::vector<std::int64_t> stage_costs_;  // scratch of score()
  std::int64_t work_ = 0;
};

}  // namespace pipewright
