#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipewright/checkpoint/name_in_file.h"
#include "pipewright/checkpoint/reader.h"

namespace pipewright {

/// How a save ended.
struct SaveReport {
  std::string path;  // of the checkpoint
  std::int64_t step = 0;
  std::int64_t bytes = 0;    // that this process wrote
  double held_seconds = 0;   // save() took: the copy into the host's memory
  double write_seconds = 0;  // the rest, beside the training
  std::string error = {};    // empty: the checkpoint is whole and in its place
};

struct SaveOptions {
  /// The newest so many checkpoints stay, this one among them; older ones are removed. 0: all stay.
  int keep = 0;
  /// Whatever the caller needs to go on: the position in the data, say. resume() hands it back.
  nlohmann::json state = {};
  /// Written on a thread of its own while training goes on. False: save() returns when the
  /// checkpoint is whole.
  bool background = true;
  /// Called on the thread that wrote, in every process; must not call the trainer. A failure that
  /// was told here is not thrown.
  std::function<void(const SaveReport&)> done = {};
};

/// What a run continues from.
struct Resumed {
  std::string path;           // of the checkpoint; empty: there is none, and nothing has changed
  std::int64_t step = 0;      // steps that were done
  nlohmann::json state = {};  // the caller's, as saved
  std::vector<RefusedCheckpoint> refused = {};  // newer ones, and why
  std::vector<std::string> notes = {};  // what of the checkpoint is not used, or not as asked for

  explicit operator bool() const { return !path.empty(); }
};

struct LoadOptions {
  /// What the file calls a tensor of the model, e.g. "transformer.h.0.ln_1.weight" for
  /// "block0.norm1.weight", and whether it holds it transposed or in parts. Empty: the same.
  NamesInFile name_in_file = {};
  /// Tensors of the file that the model does not have are left alone instead of refused.
  bool allow_unexpected = false;
  /// Tensors of the model that the file does not have keep their values instead of being refused.
  bool allow_missing = false;
};

/// What load_weights() left alone, where that was allowed; sorted.
struct Loaded {
  std::vector<std::string> missing = {};
  std::vector<std::string> unexpected = {};
};

}  // namespace pipewright
