#include "pipewright/plan/split_problem.h"

#include <bit>

namespace pipewright {
namespace {

std::vector<std::int64_t> signed_sums(const std::vector<std::uint64_t>& layers) {
  return prefix_sums(std::vector<std::int64_t>(layers.begin(), layers.end()));
}

}  // namespace

std::uint64_t SplitProblem::most_total(const Program& program, std::size_t num_layers) {
  // A step is shorter than all its work in a row: 3 times the total for each micro-batch. Bounds
  // add a few times the total for each rank.
  const auto factor = static_cast<std::uint64_t>(program.num_micro_batches) +
                      static_cast<std::uint64_t>(program.num_ranks());
  const std::uint64_t for_times = (std::uint64_t{1} << 59) / factor;
  const std::uint64_t for_squares = std::uint64_t{1} << (60 - std::bit_width(num_layers));
  return std::min(for_times, for_squares);
}

SplitProblem::SplitProblem(const Program& program, const std::vector<std::uint64_t>& layers)
    : sums_(signed_sums(layers)),
      num_stages_(program.placement.size()),
      count_bits_(2 * static_cast<int>(std::bit_width(layers.size()))),
      clock_(program),
      paths_(program, sums_),
      stage_costs_(num_stages_) {}

std::int64_t SplitProblem::work_of_score() const {
  return static_cast<std::int64_t>(clock_.num_instructions()) +
         kWorkOfStage * static_cast<std::int64_t>(num_stages_);
}

SplitScore SplitProblem::without_time(std::size_t begin, std::size_t end) const {
  const std::int64_t cost = sums_[end] - sums_[begin];
  const auto wide = static_cast<uint128>(cost);
  const uint128 count = end - begin;
  return {0, cost, (wide * wide << count_bits_) + count * count};
}

SplitScore SplitProblem::score(const std::vector<std::size_t>& begins) {
  work_ += work_of_score();
  SplitScore score;
  for (std::size_t stage = 0; stage < num_stages_; ++stage) {
    const std::size_t end = stage + 1 < num_stages_ ? begins[stage + 1] : num_layers();
    const SplitScore own = without_time(begins[stage], end);
    stage_costs_[stage] = own.bottleneck;
    score = join(score, own);
  }
  score.time = clock_.step_time(stage_costs_);
  return score;
}

SplitScore SplitProblem::stage_score(std::size_t stage, std::size_t begin, std::size_t end) {
  work_ += kWorkOfStage;
  SplitScore score = without_time(begin, end);
  score.time = paths_.through_stage(stage, begin, end);
  return score;
}

std::int64_t SplitProblem::time_over_ranks(std::span<const std::size_t> begins, std::size_t end) {
  work_ += kWorkOfStage * static_cast<std::int64_t>(num_stages_);
  return paths_.over_ranks(begins, end);
}

}  // namespace pipewright
