#include "pipewright/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/base/sha256.h"
#include "pipewright/checkpoint/directory.h"
#include "pipewright/checkpoint/storage.h"
#include "pipewright/checkpoint/text.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("checkpoint", why); }

void check_bytes(const InputFile& file, const FileEntry& entry) {
  if (file.size() == entry.bytes) return;
  refuse(fmt::format("'{}' has {} bytes, it was written with {}; use another checkpoint",
                     file.path(), file.size(), entry.bytes));
}

void check_digest(const std::string& path, const std::string& found, const FileEntry& entry) {
  if (found == entry.sha256) return;
  refuse(
      fmt::format("'{}' is not as it was written: its SHA-256 is {}, it was {}; use another "
                  "checkpoint",
                  path, found, entry.sha256));
}

std::string file_digest(const InputFile& file) {
  constexpr std::int64_t kPieceBytes = 1 << 20;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(file.size(), kPieceBytes)));
  Sha256 sha;
  for (std::int64_t at = 0; at < file.size();) {
    const auto bytes = std::min<std::int64_t>(file.size() - at, std::ssize(piece));
    const auto part = std::span(piece).first(static_cast<std::size_t>(bytes));
    file.read(at, part);
    sha.update(part);
    at += bytes;
  }
  return sha.hex();
}

}  // namespace

class FileChecks {
 public:
  FileChecks(std::string folder, const std::vector<FileEntry>& entries)
      : folder_(std::move(folder)) {
    for (const FileEntry& entry : entries) {
      files_[entry.file] = std::make_unique<State>();
      files_[entry.file]->entry = entry;
    }
  }

  bool has(const std::string& file) const { return files_.contains(file); }

  void check(const std::string& file) {
    State& state = of(file);
    const std::scoped_lock lock(state.mutex);
    if (state.is_checked) return;
    const InputFile input(in_folder(folder_, file));
    check_bytes(input, state.entry);
    check_digest(input.path(), file_digest(input), state.entry);
    state.is_checked = true;
  }

  /// The text of a small file, from one reading.
  std::string checked_text(const std::string& file) {
    State& state = of(file);
    const std::string path = in_folder(folder_, file);
    std::string text = read_text(path, kMostHeaderBytes);
    check_digest(path, sha256_hex(text), state.entry);
    const std::scoped_lock lock(state.mutex);
    state.is_checked = true;
    return text;
  }

 private:
  struct State {
    FileEntry entry;
    std::mutex mutex;
    bool is_checked = false;
  };

  State& of(const std::string& file) {
    const auto found = files_.find(file);
    if (found == files_.end()) {
      refuse(
          fmt::format("checkpoint.json of '{}' does not have the file {}", folder_, shown(file)));
    }
    return *found->second;
  }

  std::string folder_;
  std::map<std::string, std::unique_ptr<State>> files_;
};

TensorSet Checkpoint::open_part(Part part) const {
  const std::string file = index_file(part);
  if (part == Part::kOptimizer && !checks_->has(file)) return {};  // an optimizer without state
  TensorIndex index = parse_index(checks_->checked_text(file), in_folder(path_, file));
  for (const auto& [tensor, in] : index.files) {
    if (!checks_->has(in)) {
      refuse(fmt::format("'{}' has tensor {} in the file {}, which checkpoint.json does not have",
                         in_folder(path_, file), shown(tensor), shown(in)));
    }
  }
  if (index.total_size < 0) {
    refuse(fmt::format("'{}' does not give metadata.total_size", in_folder(path_, file)));
  }
  return {path_, std::move(index), [checks = checks_](const std::string& f) { checks->check(f); }};
}

void Checkpoint::verify() const {
  for (const FileEntry& entry : manifest_.files) checks_->check(entry.file);
  weights_.check();
  optimizer_.check();
}

void Checkpoint::verify(const std::vector<std::string>& files) const {
  for (const std::string& file : files) checks_->check(file);
}

Checkpoint open_checkpoint(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  const std::string manifest = in_folder(path, kManifestFile);
  checkpoint.manifest_ = parse_manifest(read_text(manifest, kMostHeaderBytes), manifest);
  const auto named = parse_step_folder(std::filesystem::path(path).filename().string());
  if (named && *named != checkpoint.step()) {
    refuse(fmt::format("'{}' is of step {} by its checkpoint.json; was it renamed?", path,
                       checkpoint.step()));
  }
  for (const FileEntry& entry : checkpoint.files()) {
    check_bytes(InputFile(in_folder(path, entry.file)), entry);
  }
  checkpoint.checks_ = std::make_shared<FileChecks>(path, checkpoint.files());
  checkpoint.weights_ = checkpoint.open_part(Part::kWeights);
  checkpoint.optimizer_ = checkpoint.open_part(Part::kOptimizer);
  return checkpoint;
}

NewestWhole newest_whole(const std::string& dir) {
  NewestWhole result;
  const FolderListing listing = list_checkpoints(dir);
  for (const std::string& name : listing.strange) {
    result.refused.push_back(
        {in_folder(dir, name), "[checkpoint] it is no folder that a checkpoint is saved as"});
  }
  for (const SavedFolder& folder : listing.newest_first) {
    try {
      Checkpoint checkpoint = open_checkpoint(folder.path);
      checkpoint.verify();
      result.checkpoint = std::move(checkpoint);
      break;
    } catch (const InvalidArgument& error) {
      result.refused.push_back({folder.path, error.what()});
    }
  }
  return result;
}

}  // namespace pipewright
