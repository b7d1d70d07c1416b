#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/amp/loss_scaler.h"
#include "pipewright/cost/profile.h"
#include "pipewright/nn/autocast.h"
#include "pipewright/optim/learning_rate.h"
#include "pipewright/plan/plan.h"

namespace pipewright {

/// What of a stage's forward is run again before the backward instead of held.
enum class RecomputeMode {
  kNone,
  kAll,         // all of it, from the stage's input
  kExceptLast,  // all of it, but for the last micro-batch
  kEvery,       // the input of every n-th layer is held: blocks of n are run again one by one
  kNamed,       // the same with the layers that say `checkpoint`, or that `checkpoints` names
  kSqrt,        // the same with as many blocks as the root of the stage's layers
  kBudget,      // as little as fits `memory_budget`, by the costs in `profile`
  kPlanned,     // what `operations` say
};

/// How a model is trained. The defaults are plain single-device training.
struct Strategy {
  // The pipeline.
  int ranks = 1;
  int micro_batches = 1;
  /// So many micro-batches run beside each other instead of one after the other, on threads or
  /// streams (auto micro batch): of one rank with the whole model. 0: none do.
  int lanes = 0;
  std::string schedule = "1f1b";
  int chunks = 0;  // stages a rank; 0: the schedule's default
  /// Of schedule "pipedream": all stages use, for a micro-batch, the version of their weights that
  /// the first stage used.
  bool vertical_sync = false;
  std::vector<int> sizes = {};  // layers by stage; empty: by stage guards, cost hints or parameters
  /// "cpu", "cuda:0": one for all ranks or one a rank; "cuda" with ranks that are processes: each
  /// process's own, that of its LOCAL_RANK. The model is moved there. Empty: where its
  /// parameters are. A stage guard's device comes first.
  std::vector<std::string> devices = {};
  RecomputeMode recompute = RecomputeMode::kNone;
  int recompute_every = 1;  // n of kEvery
  /// Of kNamed: the names of the layers whose inputs are held. Empty: those whose LayerOptions say
  /// `checkpoint`.
  std::vector<std::string> checkpoints = {};
  /// Of kBudget: the bytes of tensors that a rank may take, and what the layers cost, as
  /// measure_profile() of `profile/measure.h` measures it for one micro-batch.
  std::int64_t memory_budget = 0;
  Profile profile = {};
  /// Of kPlanned: by stage, as a Plan has them.
  std::vector<std::vector<Operation>> operations = {};
  /// What recompute keeps goes to the host's pinned memory and comes back beside the work: of GPUs.
  /// With kBudget where that is faster, by the profile's host_bandwidth; with kPlanned on the
  /// stages that `offload_stages` marks; else always.
  bool offload = false;
  std::vector<char> offload_stages = {};
  int threads_per_rank = 0;  // 0: cores / ranks, at least 1
  /// Each rank stays on its share of the cores: of this process's, or of those that pipewright
  /// launch gave it (base/cores.h). Where several runs use one machine, say false.
  bool pin = true;
  double deadline_seconds = 300;  // of every wait for another rank
  /// Of ranks that are threads: what one sends another takes as long as over a link of so many
  /// bytes a second, one link each way. To see what a slower network would do. 0: no time.
  double link_bandwidth = 0;

  // Processes.
  /// "threads": the ranks are threads of this process. "gloo": each is a process of its own,
  /// started by pipewright launch, torchrun, mpirun or srun; all of them call the trainer alike.
  /// "nccl": the same, tensors go from GPU to GPU; each process has one of its own.
  std::string transport = "threads";
  /// Data parallelism: so many pipelines, each with its part of the batch and `micro_batches` of
  /// its own; ranks x replicas processes. Every process is given the whole batch.
  int replicas = 1;
  bool shard_optimizer = false;       // each replica keeps the optimizer's state of its share alone
  double life_deadline_seconds = 30;  // a process without a sign of life for so long is lost
  std::string address = {};  // of this machine, for the others; empty: found from MASTER_ADDR
  /// Of "gloo", with stages on the CPU: processes of one machine, one user and one network exchange
  /// tensors through memory that they share, all others over Gloo.
  bool shared_memory = true;

  // The update.
  LearningRate learning_rate = {};  // times the optimizer's own; empty: constant
  double clip_norm = 0;             // global norm of the gradients, over all stages; 0: no clipping
  int merge_steps = 1;              // gradient merge: one update every so many steps
  bool merge_average = true;        // mean of the merged gradients; false: their sum

  // Numbers.
  std::uint64_t seed = 1;                  // of dropout and every other random draw in a forward
  Precision precision = Precision::kFull;  // of forwards and recomputes
  std::optional<bool> scale_loss = {};     // unset: with Precision::kFp16
  LossScaling loss_scaling = {};
  /// Looks at every layer's outputs and gradients and fails with the name of the first layer that
  /// made a nan or an infinity. Slow: for looking for it.
  bool check_finite = false;
};

/// The pipeline of a plan: ranks, micro-batches, schedule, chunks, sizes and recompute. The rest is
/// the caller's to set.
Strategy strategy_of(const Plan& plan);

}  // namespace pipewright
