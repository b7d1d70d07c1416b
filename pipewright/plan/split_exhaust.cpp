#include <algorithm>

#include "pipewright/plan/split_search.h"

namespace pipewright {
namespace {

class Exhauster {
 public:
  Exhauster(SplitProblem& problem, Split& best, std::int64_t most_work)
      : problem_(problem),
        best_(best),
        most_work_(most_work),
        num_begins_(problem.num_layers() - problem.num_stages() + 1),
        begins_(problem.num_stages()) {}

  bool run() {
    if (problem_.work() + work_of_least() > most_work_) return false;
    fill_least();
    return choose(0, 0, {});
  }

 private:
  /// The least that stages from `stage` on, the first of them beginning at `begin`, have by their
  /// own.
  SplitScore& least(std::size_t stage, std::size_t begin) {
    return least_[(stage - 1) * num_begins_ + begin - stage];
  }

  /// From the last stage to the second. Each part of the score is least on its own: all three
  /// together are a bound, if not of one split.
  void fill_least() {
    const std::size_t num_stages = problem_.num_stages();
    least_.resize((num_stages - 1) * num_begins_);
    for (std::size_t stage = num_stages - 1; stage > 0; --stage) {
      for (std::size_t begin = stage; begin < stage + num_begins_; ++begin) {
        least(stage, begin) = stage + 1 == num_stages
                                  ? problem_.stage_score(stage, begin, problem_.num_layers())
                                  : least_of_ends(stage, begin);
      }
    }
  }

  std::int64_t work_of_least() const {
    // The ends a stage can have, for all of its begins; the last stage has one end each.
    const double ends =
        0.5 * static_cast<double>(num_begins_) * static_cast<double>(num_begins_ + 1);
    const double stages = static_cast<double>(problem_.num_stages());
    const double scores = std::max(stages - 2, 0.0) * ends + static_cast<double>(num_begins_);
    return static_cast<std::int64_t>(std::min(scores * SplitProblem::kWorkOfStage, 0x1p62));
  }

  SplitScore least_of_ends(std::size_t stage, std::size_t begin) {
    SplitScore result;
    for (std::size_t end = begin + 1; end <= problem_.last_end(stage); ++end) {
      const SplitScore score = join(problem_.stage_score(stage, begin, end), least(stage + 1, end));
      if (end == begin + 1) result = score;
      result.time = std::min(result.time, score.time);
      result.bottleneck = std::min(result.bottleneck, score.bottleneck);
      result.imbalance = std::min(result.imbalance, score.imbalance);
    }
    return result;
  }

  /// All splits whose stages before `stage` are chosen. False where the work ran out.
  bool choose(std::size_t stage, std::size_t begin, const SplitScore& so_far) {
    begins_[stage] = begin;
    if (stage + 1 == problem_.num_stages()) return judge();
    for (std::size_t end = begin + 1; end <= problem_.last_end(stage); ++end) {
      if (problem_.work() > most_work_) return false;
      const SplitScore with = join(so_far, problem_.stage_score(stage, begin, end));
      SplitScore bound = join(with, least(stage + 1, end));
      // Not less in any part, so not better.
      if (bound >= best_.score) continue;
      if (problem_.has_chunks()) {
        const std::int64_t time = problem_.time_over_ranks({begins_.data(), stage + 1}, end);
        bound.time = std::max(bound.time, time);
        if (bound >= best_.score) continue;
      }
      if (!choose(stage + 1, end, with)) return false;
    }
    return true;
  }

  bool judge() {
    const SplitScore score = problem_.score(begins_);
    if (score < best_.score) best_ = {begins_, score};
    return true;
  }

  SplitProblem& problem_;
  Split& best_;
  std::int64_t most_work_;
  std::size_t num_begins_;  // each stage can begin at this many layers
  std::vector<std::size_t> begins_;
  std::vector<SplitScore> least_;
};

}  // namespace

bool exhaust(SplitProblem& problem, Split& split, std::int64_t most_work) {
  return Exhauster(problem, split, most_work).run();
}

}  // namespace pipewright
