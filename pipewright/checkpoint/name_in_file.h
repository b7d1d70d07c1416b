#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pipewright {

/// How a file of another program holds a tensor of a model: under a name of its own, or in several
/// parts, which lie one after the other along dimension 0 of the model's.
struct NameInFile {
  NameInFile() = default;  // it does not hold it
  /// Of most a name is all there is to say.
  NameInFile(std::string name)  // NOLINT(google-explicit-constructor, hicpp-explicit-conversions)
      : parts{std::move(name)} {}
  NameInFile(std::vector<std::string> names, bool is_transposed)
      : parts(std::move(names)), transposed(is_transposed) {}

  std::vector<std::string> parts;
  bool transposed = false;  // rows and columns of every part are those of the model, swapped

  bool empty() const { return parts.empty(); }
  friend bool operator==(const NameInFile&, const NameInFile&) = default;
};

/// From the names of a model's tensors. Empty: the same names.
using NamesInFile = std::function<NameInFile(const std::string& name)>;

}  // namespace pipewright
