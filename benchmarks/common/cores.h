#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "pipewright/sim/simulate.h"
#include "pipewright/train/trainer.h"

namespace pipewright::bench {

/// A layer x + table: behind it a first block has an input gradient to compute, as all others have.
Sequence& add_positions(Sequence* model, int seq, int dim);

/// What one rank has of a model, as a model of its own.
struct Share {
  Sequence model;
  Loss loss;
  Batch batch;
  Strategy strategy;  // one rank; the schedule and chunks of the whole
};

/// The layers of a rank's stages, behind add_positions() where they do not begin with the first.
/// `sizes`: layers by stage.
Share share_of(const Sequence& model, const std::vector<int>& sizes, const Program& program,
               int rank, int seq, int dim);

/// What cores make of the ranks' work at the same time with nothing to wait for. Played by a
/// schedule, their times are what an engine without cost would have had on these cores then: cores
/// of a shared machine are not equally fast, change by the second, and a pipeline has the speed of
/// the slowest. So it is known no better than cores are steady.
class CoreTimes {
 public:
  /// Each share on a core of its own, all at once: one step to warm up, then `steps`.
  CoreTimes(std::vector<Share> shares, const OptimizerFactory& optimizer, int steps);

  /// The Program of as many ranks, each instruction as long as such a one took on its rank's core,
  /// the next one every time.
  Simulation play(const Program& program) const;

  /// The busiest core's time over the mean of all.
  double slowest() const;

 private:
  using Key = std::tuple<Kind, int>;                         // the stage as counted within its rank
  std::vector<std::map<Key, std::vector<double>>> seconds_;  // by core, in the order they ran
};

}  // namespace pipewright::bench
