#include "pipewright/train/batch.h"

#include <fmt/format.h>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("trainer", why); }

}  // namespace

std::int64_t rows_of(const Batch& batch) {
  if (batch.inputs.empty()) refuse("the batch has no inputs");
  std::int64_t rows = -1;
  const auto look = [&](const torch::Tensor& tensor, const char* what, std::size_t index) {
    if (!tensor.defined() || tensor.dim() == 0)
      refuse(fmt::format("{} {} has no dimension to split", what, index));
    if (rows < 0) rows = tensor.size(0);
    if (tensor.size(0) != rows) {
      refuse(fmt::format(
          "{} {} has {} rows, others have {}; mark an input as shared if it is not to be split",
          what, index, tensor.size(0), rows));
    }
  };
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    const bool shared = i < batch.shared_inputs.size() && batch.shared_inputs[i] != 0;
    if (!shared) look(batch.inputs[i], "input", i);
  }
  for (std::size_t i = 0; i < batch.targets.size(); ++i) look(batch.targets[i], "target", i);
  if (rows < 0) refuse("all inputs are shared; there is nothing to split");
  if (rows == 0) refuse("the batch is empty: 0 rows");
  return rows;
}

std::vector<Tensors> split(const Tensors& tensors, const std::vector<char>& shared, int parts) {
  std::vector<Tensors> result(static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i < shared.size() && shared[i] != 0) {
      for (auto& part : result) part.push_back(tensors[i]);
      continue;
    }
    const auto pieces = tensors[i].tensor_split(parts, 0);
    for (std::size_t m = 0; m < result.size(); ++m) result[m].push_back(pieces[m]);
  }
  return result;
}

}  // namespace pipewright
