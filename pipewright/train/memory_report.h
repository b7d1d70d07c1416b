#pragma once

#include <vector>

#include "pipewright/train/pipeline.h"

namespace pipewright {

/// The bytes of ranks and stages, step by step.
class MemoryReport {
 public:
  /// Charges the model's parameters and buffers to the stages that own them.
  MemoryReport(const SharedModel& shared, const Pipeline& pipeline);

  /// Peaks count from now on.
  void begin();

  /// 0 for those of other processes.
  std::vector<std::int64_t> rank_peaks() const;
  std::vector<std::int64_t> stage_peaks() const;

 private:
  static constexpr int kElsewhere = -1;  // in another process
  struct Entry {
    int slot = kElsewhere;
    std::int64_t unmetered = 0;  // bytes that the meter does not know: the model is older than it
  };
  static std::vector<std::int64_t> peaks(const std::vector<Entry>& entries);

  std::vector<Entry> ranks_;
  std::vector<Entry> stages_;
};

}  // namespace pipewright
