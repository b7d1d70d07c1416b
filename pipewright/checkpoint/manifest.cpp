#include "pipewright/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "pipewright/base/error.h"
#include "pipewright/base/json.h"
#include "pipewright/base/sha256.h"
#include "pipewright/checkpoint/text.h"

namespace pipewright {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "pipewright-checkpoint";
constexpr std::int64_t kVersion = 1;

// How checkpoint.json ends: the checksum covers everything before it.
constexpr std::string_view kSealStart = "  \"sha256\": \"";
constexpr std::string_view kSealEnd = "\"\n}\n";
constexpr std::size_t kDigestDigits = 64;
constexpr std::size_t kSealBytes = kSealStart.size() + kDigestDigits + kSealEnd.size();

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("checkpoint", why); }

std::string digest(const JsonObject& object, const std::string& path) {
  std::string text = object.string("sha256");
  const bool is_digest =
      text.size() == kDigestDigits && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
      });
  if (!is_digest)
    refuse(fmt::format("{}.sha256 is {}, not 64 digits of 0-9a-f", path, shown(text)));
  return text;
}

std::string plain_file(std::string name, const std::string& path) {
  if (!is_plain_file_name(name)) {
    refuse(fmt::format("{} names the file {}, which is no name of a file beside it", path,
                       shown(name)));
  }
  return name;
}

FileEntry parse_entry(const json& value, const std::string& path) {
  const JsonObject object(value, "checkpoint", path);
  object.refuse_unknown({"file", "bytes", "sha256"});
  return {plain_file(object.string("file"), path), object.integer("bytes", 0, INT64_MAX),
          digest(object, path)};
}

std::vector<FileEntry> parse_entries(const json& array, const std::string& path) {
  std::vector<FileEntry> files;
  std::set<std::string> names;
  for (const json& value : array) {
    files.push_back(parse_entry(value, fmt::format("{}.files[{}]", path, files.size())));
    const std::string& name = files.back().file;
    if (name == kManifestFile || !names.insert(name).second) {
      refuse(fmt::format("{}.files has {} twice", path, shown(name)));
    }
  }
  return files;
}

/// -1 unless it is a whole number: other programs write what they like there. Our own files' is
/// held against the tensors, see Checkpoint::verify.
std::int64_t total_size(const json& metadata) {
  const auto found = metadata.find("total_size");
  if (found == metadata.end() || !found->is_number_unsigned()) return -1;
  const auto size = found->get<std::uint64_t>();
  return size <= INT64_MAX ? static_cast<std::int64_t>(size) : -1;
}

void check_seal(std::string_view text, const std::string& path) {
  const std::size_t start = text.size() < kSealBytes ? 0 : text.size() - kSealBytes;
  const std::string_view seal = text.substr(start);
  if (!seal.starts_with(kSealStart) || !seal.ends_with(kSealEnd)) {
    refuse(fmt::format("'{}' is damaged: it does not end with its own checksum", path));
  }
  const std::string_view given = seal.substr(kSealStart.size(), kDigestDigits);
  const std::string found = sha256_hex(text.substr(0, start));
  if (given != found) {
    refuse(
        fmt::format("'{}' is damaged: its SHA-256 is {}, it says {}", path, found, shown(given)));
  }
}

std::string unsealed_text(const Manifest& manifest) {
  nlohmann::ordered_json out;
  out["format"] = kFormat;
  out["version"] = kVersion;
  out["step"] = manifest.step;
  out["state"] = manifest.state;
  out["files"] = nlohmann::ordered_json::array();
  for (const FileEntry& entry : manifest.files) {
    out["files"].push_back(
        {{"file", entry.file}, {"bytes", entry.bytes}, {"sha256", entry.sha256}});
  }
  std::string text = out.dump(2);
  text.resize(text.size() - 2);  // the line with the last brace: the checksum comes before it
  return text + ",\n";
}

}  // namespace

json to_json(const FileRecord& record) {
  return {{"part", part_name(record.part)},
          {"group", record.group},
          {"num_groups", record.num_groups},
          {"bytes", record.bytes},
          {"tensor_bytes", record.tensor_bytes},
          {"sha256", record.sha256},
          {"tensors", record.tensors}};
}

FileRecord parse_file_record(const json& value) {
  constexpr int kMostGroups = 99'999;  // five digits in a file's name
  const std::string path = "file record";
  const JsonObject object(value, "checkpoint", path);
  object.refuse_unknown(
      {"part", "group", "num_groups", "bytes", "tensor_bytes", "sha256", "tensors"});
  const std::string name = object.string("part");
  const auto part = parse_part(name);
  if (!part) refuse(fmt::format("{}.part is {}; known are model, optimizer", path, shown(name)));
  const std::int64_t num_groups = object.integer("num_groups", 1, kMostGroups);
  FileRecord record;
  record.part = *part;
  record.num_groups = static_cast<int>(num_groups);
  record.group = static_cast<int>(object.integer("group", 0, num_groups - 1));
  record.bytes = object.integer("bytes", 0, INT64_MAX);
  record.tensor_bytes = object.integer("tensor_bytes", 0, record.bytes);
  record.sha256 = digest(object, path);
  record.tensors = object.strings("tensors");
  return record;
}

std::string sealed(std::string_view text) {
  return fmt::format("{}{}{}{}", text, kSealStart, sha256_hex(text), kSealEnd);
}

std::string to_text(const Manifest& manifest) {
  std::string text;
  try {
    text = sealed(unsealed_text(manifest));
  } catch (const json::exception&) {
    refuse("the state to be saved has text that is no UTF-8");
  }
  if (parse_manifest(text, "checkpoint.json to be written") != manifest) {
    refuse("the state to be saved does not read back the same: it has a number that is not finite");
  }
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  check_seal(text, path);
  const json value = parse_strict_json(text, path);
  const std::string name = fmt::format("'{}': checkpoint", path);
  const JsonObject object(value, "checkpoint", name);
  const std::string format = object.string("format");
  if (format != kFormat)
    refuse(fmt::format("{}.format is {}, not {}", name, shown(format), kFormat));
  const std::int64_t version = object.integer("version", 0, INT64_MAX);
  if (version != kVersion) {
    refuse(
        fmt::format("{} is of version {}, this program reads version {}", name, version, kVersion));
  }
  object.refuse_unknown({"format", "version", "step", "state", "files", "sha256"});
  if (!object.has("state")) refuse(fmt::format("{}.state is missing", name));
  return {object.integer("step", 0, INT64_MAX), value.at("state"),
          parse_entries(object.array("files"), name)};
}

std::string to_text(const TensorIndex& index) {
  json out;
  out["metadata"] = json::object();
  if (index.total_size >= 0) out["metadata"]["total_size"] = index.total_size;
  out["weight_map"] = index.files;
  return out.dump(2) + "\n";
}

TensorIndex parse_index(std::string_view text, const std::string& path) {
  const json value = parse_strict_json(text, path);
  const std::string name = fmt::format("'{}': index", path);
  const JsonObject object(value, "checkpoint", name);
  TensorIndex index;
  if (object.has("metadata")) index.total_size = total_size(value.at("metadata"));
  if (!object.has("weight_map")) refuse(fmt::format("{}.weight_map is missing", name));
  const JsonObject map(value.at("weight_map"), "checkpoint", name + ".weight_map");
  for (const auto& [tensor, ignored] : value.at("weight_map").items()) {
    index.files[tensor] = plain_file(map.string(tensor), name);
  }
  return index;
}

TensorIndex make_index(Part part, std::span<const FileRecord> records) {
  TensorIndex index;
  index.total_size = 0;
  std::set<std::string> files;
  int num_groups = 0;
  for (const FileRecord& record : records) {
    if (record.part != part) continue;
    num_groups = std::max(num_groups, record.num_groups);
    if (__builtin_add_overflow(index.total_size, record.tensor_bytes, &index.total_size)) {
      refuse(fmt::format("'{}' has {} bytes of tensors, which cannot be", record.file(),
                         record.tensor_bytes));
    }
    if (!files.insert(record.file()).second) refuse(fmt::format("'{}' comes twice", record.file()));
    for (const std::string& tensor : record.tensors) {
      const auto [place, is_new] = index.files.emplace(tensor, record.file());
      if (is_new) continue;
      refuse(fmt::format("tensor {} is in '{}' and in '{}'; one group may save it", shown(tensor),
                         place->second, record.file()));
    }
  }
  for (int group = 0; group < num_groups; ++group) {
    const std::string file = group_file(part, group, num_groups);
    if (files.erase(file) == 0) refuse(fmt::format("'{}' was not written", file));
  }
  if (!files.empty()) {
    refuse(fmt::format("'{}' is of another number of groups than {}", *files.begin(), num_groups));
  }
  return index;
}

}  // namespace pipewright
