#pragma once

#include <exception>
#include <string>

#include "pipewright/train/checkpoint.h"
#include "pipewright/train/exchange.h"
#include "pipewright/train/snapshot.h"

namespace pipewright {

/// One save.
struct SaveJob {
  std::string dir;
  std::int64_t step = 0;
  int keep = 0;
  bool tidy = false;  // what killed writers left is put in order first
  Snapshot snapshot;
  std::exception_ptr failure = {};  // why there is no snapshot
};

/// Writes a checkpoint, together with the other processes, and prunes. A file a layer and part, by
/// whom the layer's tensors are; the same files whatever the partition. Returns the bytes that this
/// process wrote. Throws where any process failed: then what was there before still is.
std::int64_t write_checkpoint(const SaveJob& job, Exchange* exchange);

}  // namespace pipewright
