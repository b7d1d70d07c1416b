#include "pipewright/checkpoint/tensor_set.h"

#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/text.h"

namespace pipewright {

struct TensorSet::File {
  std::size_t num_indexed = 0;  // tensors that the index has in it
  std::mutex mutex;
  bool read = false;
  std::int64_t bytes = 0;
  std::int64_t data_start = 0;
  std::map<std::string, TensorRecord> tensors;
};

namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("checkpoint", why); }

TensorSet single_file(const std::filesystem::path& path) {
  const std::string file = path.filename().string();
  TensorIndex index;
  const SafetensorsFile opened(path.string(), Links::kFollow);
  for (const TensorRecord& tensor : opened.header().tensors) {
    index.files[tensor.name] = file;
  }
  const std::string folder = path.parent_path().string();
  return {folder.empty() ? "." : folder, std::move(index), {}, Links::kFollow};
}

}  // namespace

TensorSet::TensorSet(std::string folder, TensorIndex index, BeforeUse before_use, Links links)
    : folder_(std::move(folder)),
      index_(std::move(index)),
      before_use_(std::move(before_use)),
      links_(links) {
  for (const auto& [name, file] : index_.files) {
    auto& place = files_[file];
    if (!place) place = std::make_shared<File>();
    ++place->num_indexed;
  }
}

std::vector<std::string> TensorSet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : index_.files) names.push_back(name);
  return names;
}

std::vector<std::string> TensorSet::files() const {
  std::vector<std::string> files;
  for (const auto& [file, ignored] : files_) files.push_back(file);
  return files;
}

bool TensorSet::contains(std::string_view name) const {
  return index_.files.contains(std::string(name));
}

const std::string& TensorSet::file_of(const std::string& name) const {
  const auto found = index_.files.find(name);
  if (found == index_.files.end()) {
    refuse(fmt::format("'{}' has no tensor {} among its {}; is it of another model?", folder_,
                       shown(name), size()));
  }
  return found->second;
}

TensorSet::File& TensorSet::use(const std::string& name) const {
  File& file = *files_.at(name);
  const std::scoped_lock lock(file.mutex);  // one file's: others are read meanwhile
  if (file.read) return file;
  if (before_use_) before_use_(name);
  const SafetensorsFile opened(in_folder(folder_, name), links_);
  file.tensors = indexed_tensors(opened, name, file.num_indexed);
  file.bytes = opened.data_start() + opened.header().data_bytes();
  file.data_start = opened.data_start();
  file.read = true;
  return file;
}

std::map<std::string, TensorRecord> TensorSet::indexed_tensors(const SafetensorsFile& opened,
                                                               const std::string& name,
                                                               std::size_t num_indexed) const {
  const std::string path = in_folder(folder_, name);
  std::map<std::string, TensorRecord> tensors;
  for (const TensorRecord& tensor : opened.header().tensors) {
    const auto indexed = index_.files.find(tensor.name);
    if (indexed == index_.files.end() || indexed->second != name) {
      refuse(fmt::format("tensor {} is in '{}', but not by the index", shown(tensor.name), path));
    }
    tensors[tensor.name] = tensor;
  }
  if (tensors.size() == num_indexed) return tensors;
  for (const auto& [tensor, in] : index_.files) {
    if (in == name && !tensors.contains(tensor)) {
      refuse(fmt::format("tensor {} is not in '{}', but it is by the index", shown(tensor), path));
    }
  }
  return tensors;
}

const TensorRecord& TensorSet::find(const std::string& name) const {
  return use(file_of(name)).tensors.at(name);
}

void TensorSet::read(const std::string& name, std::span<std::byte> into) const {
  const File& file = use(file_of(name));
  const TensorRecord& tensor = file.tensors.at(name);
  const InputFile input(in_folder(folder_, file_of(name)), links_);
  if (input.size() != file.bytes) {
    refuse(fmt::format("'{}' changed while it was read: it had {} bytes and has {}", input.path(),
                       file.bytes, input.size()));
  }
  if (static_cast<std::int64_t>(into.size()) != tensor.bytes()) {
    refuse(fmt::format("tensor {} of '{}' has {} bytes, room is for {}", shown(name), input.path(),
                       tensor.bytes(), into.size()));
  }
  input.read(file.data_start + tensor.begin, into);
}

void TensorSet::check() const {
  std::int64_t bytes = 0;
  for (const auto& [name, ignored] : files_) {
    for (const auto& [tensor, record] : use(name).tensors) bytes += record.bytes();
  }
  if (index_.total_size >= 0 && bytes != index_.total_size) {
    refuse(fmt::format("the tensors of '{}' have {} bytes, by the index {}", folder_, bytes,
                       index_.total_size));
  }
}

TensorSet open_weights(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return single_file(path);
  // As Hugging Face's own loader: one file comes before an index.
  const std::string single = in_folder(path, "model.safetensors");
  if (is_there(single)) return single_file(single);
  const std::string index = in_folder(path, index_file(Part::kWeights));
  if (is_there(index))
    return {path,
            parse_index(read_text(index, kMostHeaderBytes, Links::kFollow), index),
            {},
            Links::kFollow};
  refuse(
      fmt::format("'{}' has neither model.safetensors nor {}; name the folder of a model's "
                  "weights, or a .safetensors file",
                  path, index_file(Part::kWeights)));
}

}  // namespace pipewright
