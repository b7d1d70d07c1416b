#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/checkpoint/layout.h"

namespace pipewright {

/// What the process that wrote a group's file tells the one that commits the checkpoint.
struct FileRecord {
  Part part = Part::kWeights;
  int group = 0;
  int num_groups = 1;
  std::int64_t bytes = 0;
  std::int64_t tensor_bytes = 0;  // without the header
  std::string sha256;
  std::vector<std::string> tensors;  // their names

  std::string file() const { return group_file(part, group, num_groups); }
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

nlohmann::json to_json(const FileRecord& record);

/// Throws InvalidArgument naming the member that is wrong.
FileRecord parse_file_record(const nlohmann::json& value);

/// A file of a checkpoint.
struct FileEntry {
  std::string file;
  std::int64_t bytes = 0;
  std::string sha256;

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

/// What checkpoint.json says.
struct Manifest {
  std::int64_t step = 0;
  nlohmann::json state;
  std::vector<FileEntry> files;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The text of checkpoint.json. Its last member is the SHA-256 of all the bytes before that. Throws
/// InvalidArgument where the state cannot be written so that it reads back the same: text that is
/// no UTF-8, numbers that are not finite.
std::string to_text(const Manifest& manifest);

/// Reads it back; `path` is for messages. Throws InvalidArgument where a byte of it was changed,
/// and for files that lie elsewhere, stand there twice or are not said to be of a size.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// `text`, which ends with the comma before its last member, with the checksum as that member.
std::string sealed(std::string_view text);

/// An index: which tensor is in which file.
struct TensorIndex {
  std::int64_t total_size = -1;              // bytes of all tensors; -1 where it is not said
  std::map<std::string, std::string> files;  // by tensor

  friend bool operator==(const TensorIndex&, const TensorIndex&) = default;
};

std::string to_text(const TensorIndex& index);

/// Reads one, whoever wrote it; `path` is for messages. Throws InvalidArgument for files that lie
/// elsewhere.
TensorIndex parse_index(std::string_view text, const std::string& path);

/// The index of the records of one part. Throws InvalidArgument where a group is missing or comes
/// twice, or a tensor is in two files.
TensorIndex make_index(Part part, std::span<const FileRecord> records);

}  // namespace pipewright
