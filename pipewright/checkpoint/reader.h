#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pipewright/checkpoint/manifest.h"
#include "pipewright/checkpoint/tensor_set.h"

namespace pipewright {

/// The files of a checkpoint against their checksums, each once.
class FileChecks;

/// A checkpoint on the disk. Nothing unchecked is read from it: the first use of a tensor reads its
/// file against the checksum. Several threads may read at once.
class Checkpoint {
 public:
  const std::string& path() const { return path_; }
  std::int64_t step() const { return manifest_.step; }
  const nlohmann::json& state() const { return manifest_.state; }
  const std::vector<FileEntry>& files() const { return manifest_.files; }

  const TensorSet& tensors(Part part) const {
    return part == Part::kWeights ? weights_ : optimizer_;
  }

  /// Reads every file against its checksum, and every header against the index. Throws
  /// InvalidArgument naming the first file that is not as it was written.
  void verify() const;

  /// Reads these of files() only, against their checksums.
  void verify(const std::vector<std::string>& files) const;

 private:
  friend Checkpoint open_checkpoint(const std::string& path);
  TensorSet open_part(Part part) const;

  std::string path_;
  Manifest manifest_;
  std::shared_ptr<FileChecks> checks_;
  TensorSet weights_;
  TensorSet optimizer_;
};

/// Opens the folder of one checkpoint: checkpoint.json is as it was written, every file is there,
/// no link and of its size, the indexes are as they were written. Throws InvalidArgument otherwise.
Checkpoint open_checkpoint(const std::string& path);

struct RefusedCheckpoint {
  std::string path;
  std::string reason;
};

struct NewestWhole {
  std::optional<Checkpoint> checkpoint;    // verified
  std::vector<RefusedCheckpoint> refused;  // newer ones, newest first, and folders of strange names
};

/// The newest checkpoint of `dir` of which every file is as it was written; none where there is no
/// such one, or no `dir`. Throws InvalidArgument where `dir` cannot be read.
NewestWhole newest_whole(const std::string& dir);

}  // namespace pipewright
