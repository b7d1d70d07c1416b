#include "pipewright/checkpoint/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/sha256.h"
#include "pipewright/checkpoint/storage.h"

namespace pipewright {
namespace {

/// Hugging Face's loader insists on it.
const SafetensorsMetadata& metadata() {
  static const SafetensorsMetadata kValue = {{"format", "pt"}};
  return kValue;
}

FileEntry write_small(const std::string& folder, const std::string& file, const std::string& text) {
  write_text(in_folder(folder, file), text);
  return {file, static_cast<std::int64_t>(text.size()), sha256_hex(text)};
}

/// The file of a record as it is on the disk of this process.
FileEntry written_file(const std::string& folder, const FileRecord& record) {
  const InputFile file(in_folder(folder, record.file()));
  if (file.size() != record.bytes) {
    throw InvalidArgument("checkpoint",
                          fmt::format("'{}' has {} bytes, its writer wrote {}; do all processes "
                                      "see the same disk?",
                                      file.path(), file.size(), record.bytes));
  }
  return {record.file(), record.bytes, record.sha256};
}

}  // namespace

CheckpointWriter::CheckpointWriter(const std::string& dir, std::int64_t step)
    : dir_(dir), step_(step), writing_(in_folder(dir, beside_folder(step, Beside::kWriting))) {
  if (step < 0) {
    throw InvalidArgument("checkpoint",
                          fmt::format("cannot save step {}; steps are 0 or more", step));
  }
}

std::string CheckpointWriter::path() const { return in_folder(dir_, step_folder(step_)); }

void CheckpointWriter::begin() const {
  make_folder(dir_);
  remove_folder(writing_);
  make_folder(writing_);
}

FileRecord CheckpointWriter::write_group(Part part, int group, int num_groups,
                                         std::span<const TensorView> tensors) const {
  FileRecord record;
  record.part = part;
  record.group = group;
  record.num_groups = num_groups;
  WrittenFile file = write_safetensors(in_folder(writing_, record.file()), tensors, metadata());
  record.bytes = file.bytes;
  record.tensor_bytes = file.tensor_bytes;
  record.sha256 = std::move(file.sha256);
  for (const TensorView& tensor : tensors) record.tensors.push_back(tensor.name);
  return record;
}

void CheckpointWriter::write_commit(std::span<const FileRecord> records,
                                    const nlohmann::json& state) const {
  Manifest manifest;
  manifest.step = step_;
  manifest.state = state;
  for (const FileRecord& record : records) {
    manifest.files.push_back(written_file(writing_, record));
  }
  if (std::none_of(records.begin(), records.end(),
                   [](const FileRecord& record) { return record.part == Part::kWeights; })) {
    throw InvalidArgument("checkpoint", fmt::format("cannot save '{}' without weights", path()));
  }
  for (const Part part : kAllParts) {
    const TensorIndex index = make_index(part, records);
    if (part == Part::kOptimizer && index.files.empty()) continue;
    manifest.files.push_back(write_small(writing_, index_file(part), to_text(index)));
  }
  write_text(in_folder(writing_, kManifestFile), to_text(manifest));
  sync_folder(writing_);
}

void CheckpointWriter::put_into_place() const {
  const std::string replaced = in_folder(dir_, beside_folder(step_, Beside::kReplaced));
  const bool replaces = is_there(path());
  if (replaces) {
    remove_folder(replaced);
    rename_folder(path(), replaced);
  }
  try {
    rename_folder(writing_, path());
  } catch (const StorageError&) {
    if (replaces) rename_folder(replaced, path());
    throw;
  }
  sync_folder(dir_);
  remove_folder(replaced);
}

void CheckpointWriter::commit(std::span<const FileRecord> records,
                              const nlohmann::json& state) const {
  try {
    write_commit(records, state);
    put_into_place();
  } catch (...) {
    abandon();
    throw;
  }
}

void CheckpointWriter::abandon() const noexcept {
  try {
    remove_folder(writing_);
  } catch (const Error&) {
    // The error that led here matters more; begin() and tidy_checkpoints() remove what is left.
  }
}

void save_checkpoint(const std::string& dir, std::int64_t step,
                     std::span<const std::vector<TensorView>> weights,
                     std::span<const std::vector<TensorView>> optimizer,
                     const nlohmann::json& state) {
  const CheckpointWriter writer(dir, step);
  std::vector<FileRecord> records;
  try {
    writer.begin();
    for (const Part part : kAllParts) {
      const auto groups = part == Part::kWeights ? weights : optimizer;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        records.push_back(writer.write_group(part, static_cast<int>(i),
                                             static_cast<int>(groups.size()), groups[i]));
      }
    }
  } catch (...) {
    writer.abandon();
    throw;
  }
  writer.commit(records, state);
}

}  // namespace pipewright
