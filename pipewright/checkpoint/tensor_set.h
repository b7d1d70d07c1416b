#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/checkpoint/manifest.h"
#include "pipewright/checkpoint/safetensors.h"

namespace pipewright {

/// Tensors by name over the files of a folder. A file's header is read at the first use of one of
/// its tensors; no file stays open. Several threads may read at once; copies share what was read.
class TensorSet {
 public:
  using BeforeUse = std::function<void(const std::string& file)>;

  TensorSet() = default;  // no tensors

  /// `before_use` is called, once, before a file is used for the first time; what it throws the use
  /// throws.
  TensorSet(std::string folder, TensorIndex index, BeforeUse before_use = {},
            Links links = Links::kRefuse);

  std::size_t size() const { return index_.files.size(); }
  std::vector<std::string> names() const;  // sorted
  std::vector<std::string> files() const;  // sorted
  bool contains(std::string_view name) const;
  const std::string& file_of(const std::string& name) const;  // without its folder

  /// Type, shape and place of a tensor. Throws InvalidArgument where there is none of that name, or
  /// where its file and the index do not agree.
  const TensorRecord& find(const std::string& name) const;

  /// Fills `into`, which has as many bytes as the tensor.
  void read(const std::string& name, std::span<std::byte> into) const;

  /// Reads the headers of all files and holds them against the index.
  void check() const;

 private:
  struct File;

  File& use(const std::string& name) const;
  std::map<std::string, TensorRecord> indexed_tensors(const SafetensorsFile& opened,
                                                      const std::string& name,
                                                      std::size_t num_indexed) const;

  std::string folder_;
  TensorIndex index_;
  BeforeUse before_use_;
  Links links_ = Links::kRefuse;
  std::map<std::string, std::shared_ptr<File>> files_;
};

/// The weights of a model as Hugging Face's tools lay them out: a .safetensors file, or a folder
/// with model.safetensors, or with model.safetensors.index.json and what that names. There are no
/// checksums, and links are followed: those tools' own cache is made of them. Throws
/// InvalidArgument.
TensorSet open_weights(const std::string& path);

}  // namespace pipewright
