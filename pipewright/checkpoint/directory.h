#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

struct SavedFolder {
  std::int64_t step = 0;
  std::string path;
  /// An old one whose writer was killed while it put a new one of the same step into its place.
  bool is_replaced = false;
};

struct FolderListing {
  std::vector<SavedFolder> newest_first;  // by step as a number
  std::vector<std::string> strange;       // named step-..., but no folder that a save makes; sorted
};

/// The checkpoints of a folder, whole or not. Nothing where there is no such folder. Throws
/// InvalidArgument where it cannot be read.
FolderListing list_checkpoints(const std::string& dir);

/// Removes all but the newest `keep` >= 1 checkpoints and returns the paths of the removed. One
/// that cannot be opened does not count, so that nothing whole is removed in its favour; it is
/// removed when it is older than those kept. Throws StorageError where the disk refuses.
std::vector<std::string> prune_checkpoints(const std::string& dir, int keep);

/// Puts in order what killed writers left: what was being written or removed is removed, what was
/// being replaced is put back unless the new one is there. Call it before a run's first save, while
/// nobody writes into `dir`. Returns the paths of what it removed or put back. Throws StorageError.
std::vector<std::string> tidy_checkpoints(const std::string& dir);

}  // namespace pipewright
