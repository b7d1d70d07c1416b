#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "pipewright/exec/rank_runner.h"
#include "pipewright/exec/sharing.h"
#include "pipewright/exec/workers.h"
#include "pipewright/train/grid.h"
#include "pipewright/train/strategy.h"

namespace pipewright {

/// What a call wants of a step.
enum class StepKind {
  kUpdate,     // gradients and the optimizer
  kMerge,      // gradients, added to those of earlier steps
  kGradients,  // gradients, made final, for the caller
  kForward,    // no gradients
};

/// Threads that a rank computes with: the strategy's; else of one process a share of the cores, of
/// several what the launcher gave.
int threads_per_rank(const Strategy& strategy, bool one_process);

/// The ranks of this process: their threads, what runs on them and how they meet.
class Pipeline {
 public:
  /// What the ranks call: see RankOptions.
  struct Calls {
    std::function<double(int stage, int version)> update;
    std::function<void(int stage)> start_reduce;
    std::function<void(int stage)> reduce;
  };
  Pipeline(const SharedModel& shared, const Strategy& strategy, const Grid& grid,
           const Calls& calls);

  /// Runs one step on all ranks. Throws what the first rank that failed threw; then nothing of the
  /// step is left on any.
  void run(StepKind kind, const StepInput& input, Timeline* timeline);

  /// Runs on the thread of every rank of this process, the first of which is 0. Throws what the
  /// first that failed threw; `on_failure` is called before the others are woken.
  void run_on_ranks(const std::function<void(int rank)>& job,
                    const std::function<void()>& on_failure);

  /// Runs on the thread of every rank, for each of its stages, with the stage's stream.
  void on_every_stage(const std::function<void(StageRunner&)>& work);

  /// The same on the calling thread, which must be the rank's, for that rank.
  static void on_stages_of(RankRunner& rank, const std::function<void(StageRunner&)>& work);

  /// Those of this process.
  const std::vector<std::unique_ptr<RankRunner>>& ranks() const { return ranks_; }
  /// Whether a stage is one of theirs.
  bool here(int stage) const { return grid_.here(shared_.layout.rank_of(stage)); }
  RankRunner& rank_of(int stage) const;
  Sharing& sharing() { return sharing_; }
  Transport& transport() { return *transport_; }

  /// Forgets a step, so that the next one starts clean. Of several processes none can go on, and
  /// the others are told why.
  void fail(const std::string& why);

 private:
  const Program& program(int micro_batches, StepKind kind);
  void abandon();

  const SharedModel& shared_;
  Strategy strategy_;
  const Grid& grid_;
  std::unique_ptr<Transport> transport_;
  Sharing sharing_;
  std::vector<int> memory_slots_;  // by stage
  std::vector<std::unique_ptr<RankRunner>> ranks_;
  std::map<std::pair<int, StepKind>, Program> programs_;
  Workers workers_;  // last: its threads use the others
};

/// The schedule's program of a step, as the strategy asks for it: its placement is the layout's. Of
/// an asynchronous schedule: of several steps, from the first to a drain.
Program make_program(const Strategy& strategy, int micro_batches);

}  // namespace pipewright
