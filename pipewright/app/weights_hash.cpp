#include "pipewright/app/weights_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <vector>

#include "pipewright/base/sha256.h"

namespace pipewright::app {
namespace {

/// Those that files have: a shared tensor by its first use.
std::vector<std::string> names_in_layer_order(const Sequence& model) {
  std::vector<std::string> names;
  std::set<int> seen;
  const Outline outline = outline_of(model);
  for (std::size_t i = 0; i < outline.size(); ++i) {
    for (const TensorOutline& tensor : outline[i]) {
      if (seen.insert(tensor.number).second)
        names.push_back(model.layers()[i].name + "." + tensor.name);
    }
  }
  return names;
}

}  // namespace

std::string weights_hash(const TensorSet& weights, const Sequence& model) {
  Sha256 hash;
  for (const std::string& name : names_in_layer_order(model)) {
    const TensorRecord& record = weights.find(name);
    hash.update(
        fmt::format("{} {} [{}]\n", name, dtype_name(record.dtype), fmt::join(record.shape, ", ")));
    std::vector<std::byte> bytes(static_cast<std::size_t>(record.bytes()));
    weights.read(name, bytes);
    hash.update(bytes);
  }
  return hash.hex();
}

}  // namespace pipewright::app
