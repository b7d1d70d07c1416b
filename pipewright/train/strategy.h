#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

enum class RecomputeMode { kNone, kAll, kExceptLast };

/// How a model is trained. The defaults are plain single-device training.
struct Strategy {
  int ranks = 1;
  int micro_batches = 1;
  std::string schedule = "1f1b";
  int chunks = 0;               // stages a rank; 0: the schedule's default
  std::vector<int> sizes = {};  // layers by stage; empty: by stage guards, cost hints or parameters
  RecomputeMode recompute = RecomputeMode::kNone;
  int threads_per_rank = 0;       // 0: cores / ranks, at least 1
  double clip_norm = 0;           // global norm of the gradients, over all stages; 0: no clipping
  int merge_steps = 1;            // gradient merge: one update every so many steps
  bool merge_average = true;      // mean of the merged gradients; false: their sum
  std::uint64_t seed = 1;         // of dropout and every other random draw in a forward
  double deadline_seconds = 300;  // of every wait for another rank
};

}  // namespace pipewright
