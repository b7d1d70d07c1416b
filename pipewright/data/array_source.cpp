#include "pipewright/data/array_source.h"

#include <fmt/format.h>

#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/data/rows.h"

namespace pipewright {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";

torch::ScalarType type_of(const ArrayFile& array) {
  switch (array.dtype()) {
    case DType::kBool: return torch::kBool;
    case DType::kU8: return torch::kUInt8;
    case DType::kI8: return torch::kInt8;
    case DType::kI16: return torch::kInt16;
    case DType::kI32: return torch::kInt32;
    case DType::kI64: return torch::kInt64;
    case DType::kF16: return torch::kFloat16;
    case DType::kBF16: return torch::kBFloat16;
    case DType::kF32: return torch::kFloat32;
    case DType::kF64: return torch::kFloat64;
    default:
      throw InvalidArgument("data",
                            fmt::format("'{}' is an array of {}, which samples cannot have; "
                                        "convert it to F32 or I64",
                                        array.path(), dtype_name(array.dtype())));
  }
}

torch::Tensor read_rows(const ArrayFile& array, std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(samples.size())};
  shape.insert(shape.end(), array.row_shape().begin(), array.row_shape().end());
  const auto rows = torch::empty(shape, type_of(array));
  for (std::size_t i = 0; i < samples.size(); ++i) array.read(samples[i], row_bytes(rows, i));
  return rows;
}

Tensors read_all(const std::vector<ArrayFile>& arrays, std::span<const std::int64_t> samples) {
  Tensors tensors;
  for (const ArrayFile& array : arrays) tensors.push_back(read_rows(array, samples));
  return tensors;
}

}  // namespace

ArraySource::ArraySource(std::vector<ArrayFile> inputs, std::vector<ArrayFile> targets)
    : inputs_(std::move(inputs)), targets_(std::move(targets)) {
  if (inputs_.empty()) throw InvalidArgument("data", "no array for the inputs; name one");
  for (const auto* arrays : {&inputs_, &targets_}) {
    for (const ArrayFile& array : *arrays) {
      type_of(array);
      if (array.rows() == size()) continue;
      throw InvalidArgument(
          "data", fmt::format("'{}' has {} rows, '{}' {}; row i of each is "
                              "sample i",
                              inputs_.front().path(), size(), array.path(), array.rows()));
    }
  }
}

SampleBatch ArraySource::batch(std::span<const std::int64_t> samples,
                               std::int64_t /*epoch*/) const {
  return {read_all(inputs_, samples), read_all(targets_, samples)};
}

ArrayFile open_array(const std::string& name) {
  if (name.ends_with(".npy")) return open_npy(name);
  if (name.ends_with(".idx") || name.ends_with("ubyte")) return open_idx(name);
  const std::size_t colon = name.rfind(':');
  if (colon != std::string::npos && name.substr(0, colon).ends_with(kSafetensors)) {
    return open_safetensors(name.substr(0, colon), name.substr(colon + 1));
  }
  throw InvalidArgument("data", fmt::format("'{}' names no array; use FILE.npy, FILE.idx or "
                                            "FILE.safetensors:TENSOR",
                                            name));
}

}  // namespace pipewright
