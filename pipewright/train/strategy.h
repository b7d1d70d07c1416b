#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/amp/loss_scaler.h"
#include "pipewright/nn/autocast.h"
#include "pipewright/optim/learning_rate.h"

namespace pipewright {

enum class RecomputeMode { kNone, kAll, kExceptLast };

/// How a model is trained. The defaults are plain single-device training.
struct Strategy {
  // The pipeline.
  int ranks = 1;
  int micro_batches = 1;
  std::string schedule = "1f1b";
  int chunks = 0;               // stages a rank; 0: the schedule's default
  std::vector<int> sizes = {};  // layers by stage; empty: by stage guards, cost hints or parameters
  /// "cpu", "cuda:0": one for all ranks or one a rank. The model is moved there. Empty: where its
  /// parameters are. A stage guard's device comes first.
  std::vector<std::string> devices = {};
  RecomputeMode recompute = RecomputeMode::kNone;
  int threads_per_rank = 0;       // 0: cores / ranks, at least 1
  double deadline_seconds = 300;  // of every wait for another rank

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

}  // namespace pipewright
