#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "pipewright/checkpoint/manifest.h"
#include "pipewright/checkpoint/safetensors.h"

namespace pipewright {

/// Saves one checkpoint, from several processes if need be:
///
///     rank 0   begin()                                       commit(all records, state)
///                     \ barrier                             /
///     rank r           `-> write_group(...) -> FileRecord -'   (as JSON, see manifest.h)
///
/// What is being written lies in a folder of its own until all of it is on the disk; then that is
/// renamed. A writer that is killed at any moment leaves the checkpoints that were there as they
/// were, the one of the same step included. Throws StorageError where the disk refuses.
class CheckpointWriter {
 public:
  /// Touches nothing yet.
  CheckpointWriter(const std::string& dir, std::int64_t step);

  /// Makes the folder to write into, anew where a killed writer left one. One process calls it,
  /// before any other writes.
  void begin() const;

  /// Writes one of `num_groups` files of a part and has it on the disk when it returns. Each group
  /// is written once, by any process or thread, several at the same time; one without tensors too.
  /// Where it throws, its file is removed; the rest is when the process that began abandons the
  /// save.
  FileRecord write_group(Part part, int group, int num_groups,
                         std::span<const TensorView> tensors) const;

  /// Puts the checkpoint into its place. One process calls it, after all groups are written; it
  /// checks that they are. `state` is any JSON. Where it throws, what was begun is removed.
  void commit(std::span<const FileRecord> records, const nlohmann::json& state) const;

  /// Removes what was begun: for saves that cannot be finished. Never throws.
  void abandon() const noexcept;

  /// Where the checkpoint is after commit().
  std::string path() const;

 private:
  void write_commit(std::span<const FileRecord> records, const nlohmann::json& state) const;
  void put_into_place() const;

  std::string dir_;
  std::int64_t step_;
  std::string writing_;
};

/// All of the above from one process, a list of tensors a group. The optimizer may have no groups.
void save_checkpoint(const std::string& dir, std::int64_t step,
                     std::span<const std::vector<TensorView>> weights,
                     std::span<const std::vector<TensorView>> optimizer,
                     const nlohmann::json& state);

}  // namespace pipewright
