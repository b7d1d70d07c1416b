#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace pipewright {

/// A tensor of whole numbers, (rows, columns), to be filled by row_of().
inline torch::Tensor int64_rows(std::size_t rows, std::int64_t columns) {
  return torch::empty({static_cast<std::int64_t>(rows), columns}, torch::kInt64);
}

/// The numbers of a row of what int64_rows() gave.
inline std::span<std::int64_t> row_of(const torch::Tensor& table, std::size_t row) {
  const auto columns = static_cast<std::size_t>(table.size(1));
  return {table.data_ptr<std::int64_t>() + row * columns, columns};
}

/// The bytes of a row of a tensor that lies row by row.
inline std::span<std::byte> row_bytes(const torch::Tensor& tensor, std::size_t row) {
  const std::size_t bytes = tensor.nbytes() / static_cast<std::size_t>(tensor.size(0));
  return {static_cast<std::byte*>(tensor.data_ptr()) + row * bytes, bytes};
}

}  // namespace pipewright
