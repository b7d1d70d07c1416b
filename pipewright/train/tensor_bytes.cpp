#include "pipewright/train/tensor_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/text.h"

namespace pipewright {
namespace {

constexpr std::array kTypes = {
    std::pair{torch::kBool, DType::kBool},   std::pair{torch::kUInt8, DType::kU8},
    std::pair{torch::kInt8, DType::kI8},     std::pair{torch::kInt16, DType::kI16},
    std::pair{torch::kFloat16, DType::kF16}, std::pair{torch::kBFloat16, DType::kBF16},
    std::pair{torch::kInt32, DType::kI32},   std::pair{torch::kFloat32, DType::kF32},
    std::pair{torch::kFloat64, DType::kF64}, std::pair{torch::kInt64, DType::kI64},
};

std::optional<DType> find_dtype(torch::ScalarType type) {
  for (const auto& [ours, files] : kTypes) {
    if (ours == type) return files;
  }
  return std::nullopt;
}

}  // namespace

DType file_dtype(const std::string& name, const torch::Tensor& tensor) {
  const auto dtype = find_dtype(tensor.scalar_type());
  if (dtype && tensor.layout() == torch::kStrided) return *dtype;
  throw InvalidArgument(
      "checkpoint",
      fmt::format("tensor {} is {}{}; files hold dense tensors of bool, whole "
                  "numbers, 16, 32 and 64 bit floats",
                  shown(name), dtype ? "sparse " : "", c10::toString(tensor.scalar_type())));
}

std::string dtype_word(torch::ScalarType type) {
  const auto dtype = find_dtype(type);
  return dtype ? std::string(dtype_name(*dtype)) : std::string(c10::toString(type));
}

std::optional<torch::ScalarType> torch_dtype(DType dtype) {
  for (const auto& [ours, files] : kTypes) {
    if (files == dtype) return ours;
  }
  return std::nullopt;
}

torch::Tensor host_copy(const std::string& name, const torch::Tensor& tensor) {
  file_dtype(name, tensor);
  return tensor.detach().to(torch::TensorOptions(torch::kCPU).dtype(tensor.scalar_type()),
                            /*non_blocking=*/false, /*copy=*/true, torch::MemoryFormat::Contiguous);
}

TensorView view_of(std::string name, const torch::Tensor& host) {
  TensorView view;
  view.dtype = file_dtype(name, host);
  view.name = std::move(name);
  view.shape = host.sizes().vec();
  view.data = {static_cast<const std::byte*>(host.data_ptr()), host.nbytes()};
  return view;
}

torch::Tensor read_tensor(const TensorSet& set, const std::string& name) {
  const TensorRecord& record = set.find(name);
  const auto type = torch_dtype(record.dtype);
  if (!type) {
    throw InvalidArgument("checkpoint",
                          fmt::format("tensor {} is of type {}, which this build cannot read",
                                      shown(name), dtype_name(record.dtype)));
  }
  torch::Tensor tensor = torch::empty(record.shape, *type);
  set.read(name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

torch::Tensor read_held(const TensorSet& set, const NameInFile& name) {
  std::vector<torch::Tensor> parts;
  for (const std::string& part : name.parts) {
    parts.push_back(read_tensor(set, part));
    if (name.transposed) parts.back() = parts.back().t().contiguous();
  }
  return parts.size() == 1 ? parts.front() : torch::cat(parts, 0);
}

std::optional<std::vector<std::int64_t>> shape_of(const TensorSet& set, const NameInFile& name) {
  std::optional<std::vector<std::int64_t>> whole;
  for (const std::string& part : name.parts) {
    std::vector<std::int64_t> shape = set.find(part).shape;
    if (shape.empty() && name.parts.size() > 1) return std::nullopt;
    if (name.transposed && shape.size() != 2) return std::nullopt;
    if (name.transposed) std::swap(shape[0], shape[1]);
    if (!whole) {
      whole = std::move(shape);
      continue;
    }
    if (shape.size() != whole->size() ||
        !std::equal(shape.begin() + 1, shape.end(), whole->begin() + 1)) {
      return std::nullopt;
    }
    whole->front() += shape.front();
  }
  return whole;
}

std::vector<std::pair<std::string, torch::Tensor>> parts_of(const NameInFile& name,
                                                            const torch::Tensor& tensor) {
  const auto count = static_cast<std::int64_t>(name.parts.size());
  internal_check(count <= 1 || (tensor.dim() > 0 && tensor.size(0) % count == 0),
                 "a tensor that does not fall into its parts");
  std::vector<std::pair<std::string, torch::Tensor>> result;
  for (std::int64_t i = 0; i < count; ++i) {
    torch::Tensor part = tensor;
    if (count > 1) part = tensor.narrow(0, i * (tensor.size(0) / count), tensor.size(0) / count);
    if (name.transposed) part = part.t();
    result.emplace_back(name.parts[static_cast<std::size_t>(i)], part.contiguous());
  }
  return result;
}

}  // namespace pipewright
