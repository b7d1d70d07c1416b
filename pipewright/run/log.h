#pragma once

#include <optional>

#include "pipewright/run/events.h"
#include "pipewright/run/folder.h"
#include "pipewright/run/metrics.h"

namespace pipewright {

/// Where a training loop puts what it measures: metrics.jsonl and, if wanted, TensorBoard's files.
/// Throws StorageError where the disk refuses.
class RunLog {
 public:
  /// After RunFolder::begin_session().
  RunLog(const RunFolder& folder, bool tensorboard, double now = unix_now());

  void step(const StepMetrics& metrics);
  void validation(const ValidationMetrics& metrics);

 private:
  MetricsWriter metrics_;
  std::optional<EventWriter> events_;
};

}  // namespace pipewright
