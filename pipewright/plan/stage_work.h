#pragma once

#include <map>
#include <tuple>
#include <utility>

#include "pipewright/cost/profile.h"
#include "pipewright/ir/program.h"
#include "pipewright/recompute/stage_plan.h"

namespace pipewright {

/// Layers [first, last) of a profile: a stage.
struct LayerRange {
  std::size_t first = 0;
  std::size_t last = 0;

  int size() const { return static_cast<int>(last - first); }
  friend bool operator<(const LayerRange& a, const LayerRange& b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  }
};
std::vector<LayerRange> layer_ranges(const std::vector<int>& sizes);

/// The most micro-batches a stage holds at the same time.
struct StageLoad {
  int in_flight = 0;  // between F and B (or I)
  int halves = 0;     // between I and W
};
StageLoad stage_load(const Program& program, int stage);

/// How many inputs may lie at a stage before it takes them: those that the stage before can make
/// ahead of it.
int early_inputs(const Program& program, int stage);

/// What a stage costs in a program, `layers` run so where it says F, R and B.
StageCost stage_cost(const Profile& profile, LayerRange layers, const Program& program, int stage,
                     const std::vector<Operation>& operations, bool offload = false);

/// A pipeline's operations by stage under a memory budget a rank; or what is missing.
struct BudgetPlan {
  std::vector<std::vector<Operation>> operations;  // empty where one rank cannot do with its budget
  std::vector<char> offload;                       // by stage; empty: none
  int rank = 0;                                    // that one
  int stage = 0;
  std::int64_t static_bytes = 0;  // of its parameters (all versions), gradients and optimizer
  std::int64_t least_bytes = 0;   // that it would do with

  bool feasible() const { return !operations.empty(); }
};

/// Plans recompute for the stages of one profile, and remembers.
class BudgetPlanner {
 public:
  /// `most_units`: see optimal_recompute().
  /// `offload`: what is kept may go to the host's memory, at the profile's host_bandwidth.
  explicit BudgetPlanner(const Profile& profile, bool offload = false, int most_units = 0)
      : profile_(profile), offload_(offload), most_units_(most_units) {}

  /// As little run again as fits. A rank with several stages gives each an equal share of what its
  /// parameters leave.
  BudgetPlan plan(const std::vector<int>& sizes, const Program& program, std::int64_t memory_bytes);

 private:
  const StageRecompute& stage(LayerRange layers, const StageLoad& load, std::int64_t budget);

  const Profile& profile_;
  bool offload_;
  int most_units_;
  std::map<std::tuple<LayerRange, int, bool, std::int64_t>, StageRecompute> known_;
};

}  // namespace pipewright
