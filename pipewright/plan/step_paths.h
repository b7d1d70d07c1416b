#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// Lower bounds of the step time that hold whatever the undecided stages are. Costs are whole
/// numbers, `sums` are prefix_sums of the layers' costs, a stage is given by its first layer and
/// the one after its last.
class StepPaths {
 public:
  StepPaths(const Program& program, std::vector<std::int64_t> sums);

  /// The step takes at least this long if `stage` has the layers begin..end-1, however the layers
  /// before and after it are split.
  std::int64_t through_stage(std::size_t stage, std::size_t begin, std::size_t end) const;

  /// The step takes at least this long if stage s begins at layer begins[s] and the last of them
  /// ends before layer `end`, however the layers from there on are split.
  std::int64_t over_ranks(std::span<const std::size_t> begins, std::size_t end);

  bool has_chunks() const { return has_chunks_; }

 private:
  /// A chain of instructions that must follow each other. Weights of the cost of all layers before
  /// a stage, of its own and of all after it.
  struct Path {
    std::int64_t before = 0;
    std::int64_t own = 0;
    std::int64_t after = 0;
  };
  /// What surrounds a rank's work: F on all stages before its first instruction's stage, and if the
  /// last one makes a gradient, the gradients of all stages before that.
  struct RankWork {
    std::size_t first_stage = 0;
    std::size_t last_stage = 0;
    std::int64_t after_factor = 0;
    std::size_t num_stages = 0;
  };

  void add_paths_of(const Program& program, std::size_t stage);
  void add_rank(const Program& program, std::size_t rank);
  void keep(Path path, std::size_t stage);

  std::vector<std::int64_t> sums_;
  std::vector<std::vector<Path>> paths_;  // by stage
  std::vector<RankWork> ranks_;
  std::vector<std::size_t> rank_of_;
  std::int64_t work_ = 0;  // of a stage for all micro-batches, in units of its cost
  bool has_chunks_ = false;

  // Scratch of over_ranks, by rank.
  std::vector<std::int64_t> loads_;
  std::vector<std::size_t> undecided_;
};

}  // namespace pipewright
