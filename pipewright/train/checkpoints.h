#pragma once

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "pipewright/train/checkpoint.h"
#include "pipewright/train/exchange.h"
#include "pipewright/train/save_job.h"
#include "pipewright/train/training.h"

namespace pipewright {

/// The checkpoints of a Training: at most one is being written at a time, on a thread of its own.
/// All calls come from the caller's thread while no step runs; of several processes, from all in
/// the same order.
class Checkpoints {
 public:
  explicit Checkpoints(Training* training);
  /// Waits for what is being written.
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // As Trainer has them.
  std::string save(const std::string& dir, SaveOptions options);
  void wait();
  Resumed resume(const std::string& dir);
  Loaded load_weights(const std::string& path, const LoadOptions& options);
  void save_weights(const std::string& path, const NamesInFile& names);

 private:
  void write(const SaveJob& job, const SaveOptions& options, SaveReport report, Exchange exchange);

  Training* training_;
  Exchanges exchanges_;  // the writer's while it runs
  std::set<std::string> tidied_;
  std::exception_ptr failure_;  // of a save, until it is thrown; likewise
  std::thread writer_;
};

}  // namespace pipewright
