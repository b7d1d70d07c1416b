#include "pipewright/checkpoint/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/layout.h"
#include "pipewright/checkpoint/reader.h"
#include "pipewright/checkpoint/storage.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  bool is_folder = false;  // a link to one is not
};

/// Sorted by name.
std::vector<Entry> entries_of(const std::string& dir) {
  std::vector<Entry> entries;
  std::error_code error;
  fs::directory_iterator iterator(dir, error);
  if (error == std::errc::no_such_file_or_directory) return entries;
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error)) {
    std::error_code ignored;
    const bool is_folder = fs::is_directory(iterator->symlink_status(ignored));
    entries.push_back({iterator->path().filename().string(), is_folder});
  }
  if (error) {
    throw InvalidArgument("checkpoint",
                          fmt::format("cannot read the folder '{}': {}", dir, error.message()));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool opens(const std::string& path) {
  try {
    open_checkpoint(path);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

/// Renamed away first: a prune that is killed leaves nothing that looks like a checkpoint.
void remove_checkpoint(const std::string& dir, const SavedFolder& folder) {
  const std::string away = in_folder(dir, beside_folder(folder.step, Beside::kRemoving));
  remove_folder(away);
  rename_folder(folder.path, away);
  sync_folder(dir);
  remove_folder(away);
}

}  // namespace

FolderListing list_checkpoints(const std::string& dir) {
  FolderListing listing;
  for (const Entry& entry : entries_of(dir)) {
    const std::string path = in_folder(dir, entry.name);
    const auto step = parse_step_folder(entry.name);
    const auto beside = parse_beside_folder(entry.name);
    if (step && entry.is_folder) {
      listing.newest_first.push_back({*step, path, false});
    } else if (beside && beside->beside == Beside::kReplaced && entry.is_folder) {
      listing.newest_first.push_back({beside->step, path, true});
    } else if (entry.name.starts_with("step-")) {
      listing.strange.push_back(entry.name);
    }
  }
  std::sort(listing.newest_first.begin(), listing.newest_first.end(),
            [](const SavedFolder& a, const SavedFolder& b) {
              return std::pair(-a.step, a.is_replaced) < std::pair(-b.step, b.is_replaced);
            });
  return listing;
}

std::vector<std::string> prune_checkpoints(const std::string& dir, int keep) {
  if (keep < 1) {
    throw InvalidArgument("checkpoint",
                          fmt::format("cannot keep {} checkpoints; keep 1 or more", keep));
  }
  std::vector<std::string> removed;
  int kept = 0;
  for (const SavedFolder& folder : list_checkpoints(dir).newest_first) {
    if (folder.is_replaced) continue;
    if (kept == keep) {
      remove_checkpoint(dir, folder);
      removed.push_back(folder.path);
    } else if (opens(folder.path)) {
      ++kept;
    }
  }
  return removed;
}

std::vector<std::string> tidy_checkpoints(const std::string& dir) {
  std::vector<std::string> tidied;
  for (const Entry& entry : entries_of(dir)) {
    const auto beside = parse_beside_folder(entry.name);
    if (!beside) continue;
    const std::string path = in_folder(dir, entry.name);
    const std::string whole = in_folder(dir, step_folder(beside->step));
    if (beside->beside == Beside::kReplaced && !is_there(whole)) {
      rename_folder(path, whole);
      sync_folder(dir);
    } else {
      remove_folder(path);
    }
    tidied.push_back(path);
  }
  return tidied;
}

}  // namespace pipewright
