#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/nn/outline.h"

namespace pipewright {

/// A parameter or a buffer of a layer, with what it is called in files.
struct NamedTensor {
  std::string name;      // of its first use in the model, `layer.name`
  std::string own_name;  // of this use
  torch::Tensor tensor;
  bool is_parameter = true;

  bool is_first() const { return name == own_name; }
};

/// What the tensors of a model are called in files: as `layer.name`, one that several layers share
/// by its first use. It depends on the model alone, not on how it is laid out.
class TensorNames {
 public:
  TensorNames() = default;
  TensorNames(const Sequence& model, const Outline& outline);

  /// Of one layer: its parameters, then its buffers. Nothing where its module is not here.
  std::vector<NamedTensor> of(const Sequence& model, std::size_t layer) const;

  /// All that are here, parameters first, each once.
  std::vector<std::pair<std::string, torch::Tensor>> all(const Sequence& model) const;

  /// The later uses of shared tensors: their names with those of the first use.
  const std::map<std::string, std::string>& aliases() const { return aliases_; }

 private:
  std::map<std::string, std::string> aliases_;
};

}  // namespace pipewright
