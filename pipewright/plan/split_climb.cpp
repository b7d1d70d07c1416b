#include <bit>

#include "pipewright/plan/split_search.h"

namespace pipewright {
namespace {

/// Fills stages from the left, each as far as its paths stay within `most_time`. Empty where the
/// last one does not. Longer stages have longer paths except where a path counts what follows a
/// stage more than the stage itself; there the split is no worse a start.
std::vector<std::size_t> fill(SplitProblem& problem, std::int64_t most_time) {
  std::vector<std::size_t> begins;
  std::size_t begin = 0;
  for (std::size_t stage = 0; stage < problem.num_stages(); ++stage) {
    begins.push_back(begin);
    std::size_t fits = begin + 1;
    std::size_t too_far = problem.last_end(stage) + 1;
    while (too_far - fits > 1) {
      const std::size_t middle = fits + (too_far - fits) / 2;
      (problem.stage_score(stage, begin, middle).time <= most_time ? fits : too_far) = middle;
    }
    if (problem.stage_score(stage, begin, fits).time > most_time) return {};
    begin = fits;
  }
  if (begin != problem.num_layers()) begins.clear();
  return begins;
}

class Climber {
 public:
  Climber(SplitProblem& problem, Split& split, std::int64_t most_work)
      : problem_(problem), split_(split), most_work_(most_work) {}

  /// Long strides first where stages have many layers.
  void climb() {
    const std::size_t layers_a_stage = problem_.num_layers() / problem_.num_stages();
    for (std::size_t by = std::bit_floor(1 + layers_a_stage / kShortStages); by > 0; by /= 2) {
      while (one_round(by)) {
      }
    }
  }

 private:
  static constexpr std::size_t kShortStages = 64;

  bool may_go_on() const { return problem_.work() + problem_.work_of_score() <= most_work_; }

  /// Boundary b is where stage b begins. All runs of boundaries, the short ones first.
  bool one_round(std::size_t by) {
    const std::size_t num_stages = problem_.num_stages();
    bool better = false;
    for (std::size_t length = 1; length < num_stages && may_go_on(); ++length) {
      for (std::size_t first = 1; first + length <= num_stages && may_go_on(); ++first) {
        while (move_right(first, length, by) || move_left(first, length, by)) better = true;
      }
    }
    return better && may_go_on();
  }

  bool move_right(std::size_t first, std::size_t length, std::size_t by) {
    const std::vector<std::size_t>& begins = split_.begins;
    const std::size_t next = first + length;
    const std::size_t after = next < begins.size() ? begins[next] : problem_.num_layers();
    if (begins[next - 1] + by >= after) return false;
    return shift_if_better(first, length, static_cast<std::ptrdiff_t>(by));
  }

  bool move_left(std::size_t first, std::size_t length, std::size_t by) {
    if (split_.begins[first - 1] + by >= split_.begins[first]) return false;
    return shift_if_better(first, length, -static_cast<std::ptrdiff_t>(by));
  }

  bool shift_if_better(std::size_t first, std::size_t length, std::ptrdiff_t by) {
    if (!may_go_on()) return false;
    shift(first, length, by);
    const SplitScore score = problem_.score(split_.begins);
    if (score < split_.score) {
      split_.score = score;
      return true;
    }
    shift(first, length, -by);
    return false;
  }

  void shift(std::size_t first, std::size_t length, std::ptrdiff_t by) {
    for (std::size_t i = first; i < first + length; ++i) {
      split_.begins[i] =
          static_cast<std::size_t>(static_cast<std::ptrdiff_t>(split_.begins[i]) + by);
    }
  }

  SplitProblem& problem_;
  Split& split_;
  std::int64_t most_work_;
};

}  // namespace

std::vector<std::size_t> even_paths(SplitProblem& problem) {
  std::int64_t too_little = -1;
  std::int64_t enough = std::int64_t{1} << 62;  // longer than any path: see most_total()
  std::vector<std::size_t> best = fill(problem, enough);
  while (enough - too_little > 1) {
    const std::int64_t middle = too_little + (enough - too_little) / 2;
    std::vector<std::size_t> begins = fill(problem, middle);
    if (begins.empty()) {
      too_little = middle;
    } else {
      enough = middle;
      best = std::move(begins);
    }
  }
  return best;
}

void climb(SplitProblem& problem, Split& split, std::int64_t most_work) {
  Climber(problem, split, most_work).climb();
}

}  // namespace pipewright
