#include "pipewright/exec/sparse_join.h"

#include <ATen/Dispatch.h>

#include <array>
#include <cstdint>
#include <vector>

namespace pipewright {
namespace {

/// A row of a part's values, and the index it is for.
struct Row {
  std::int64_t index;
  std::int32_t part;
  std::int32_t place;
};

/// Rows of `weight` (indices in one dimension), as an embedding's gradient has them.
bool is_of_rows(const torch::Tensor& part) {
  return part.device().is_cpu() && part.sparse_dim() == 1 && part.dense_dim() >= 1 &&
         part._values().is_contiguous() &&
         (part.scalar_type() == torch::kFloat || part.scalar_type() == torch::kDouble);
}

/// By index; rows of one index stay in their order. Digits from the lowest up.
void sort_by_index(std::int64_t largest, std::vector<Row>* rows) {
  constexpr int kBits = 11;
  constexpr std::int64_t kDigits = std::int64_t{1} << kBits;
  std::vector<Row> other(rows->size());
  for (int shift = 0; shift < 63 && (largest >> shift) > 0; shift += kBits) {
    std::array<std::size_t, kDigits + 1> first{};
    for (const Row& row : *rows)
      ++first[static_cast<std::size_t>((row.index >> shift) & (kDigits - 1)) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    for (const Row& row : *rows)
      other[first[static_cast<std::size_t>((row.index >> shift) & (kDigits - 1))]++] = row;
    rows->swap(other);
  }
}

std::vector<Row> sorted_rows(const Tensors& parts) {
  std::vector<Row> rows;
  std::int64_t largest = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const torch::Tensor indices = parts[p]._indices().contiguous();  // (1, n)
    const auto* index = indices.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < indices.numel(); ++i) {
      rows.push_back({index[i], static_cast<std::int32_t>(p), static_cast<std::int32_t>(i)});
      largest = std::max(largest, index[i]);
    }
  }
  sort_by_index(largest, &rows);
  return rows;
}

template <typename Number>
void add_rows(const std::vector<Row>& rows, const std::vector<const Number*>& from,
              std::int64_t width, std::int64_t* indices, Number* to) {
  std::int64_t last = -1;
  to -= width;
  for (const Row& row : rows) {
    const Number* source = from[static_cast<std::size_t>(row.part)] + row.place * width;
    if (row.index != last) {
      to += width;
      *indices++ = last = row.index;
      std::copy(source, source + width, to);
      continue;
    }
    for (std::int64_t i = 0; i < width; ++i) to[i] += source[i];
  }
}

torch::Tensor join_rows(const Tensors& parts) {
  const std::vector<Row> rows = sorted_rows(parts);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    count += i == 0 || rows[i].index != rows[i - 1].index ? 1 : 0;
  const torch::Tensor like = parts.front()._values();
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape[0] = count;
  const torch::Tensor values = torch::empty(shape, like.options());
  const torch::Tensor indices = torch::empty({1, count}, parts.front()._indices().options());
  const std::int64_t width = count == 0 ? 0 : values.numel() / count;
  AT_DISPATCH_FLOATING_TYPES(like.scalar_type(), "join_rows", [&] {
    std::vector<const scalar_t*> from;
    for (const torch::Tensor& part : parts) from.push_back(part._values().data_ptr<scalar_t>());
    add_rows(rows, from, width, indices.data_ptr<std::int64_t>(), values.data_ptr<scalar_t>());
  });
  return torch::_sparse_coo_tensor_unsafe(indices, values, parts.front().sizes())._coalesced_(true);
}

}  // namespace

torch::Tensor join_sparse(const Tensors& parts) {
  const torch::NoGradGuard no_grad;
  bool rows = true;
  for (const torch::Tensor& part : parts)
    rows = rows && is_of_rows(part) && part.sizes() == parts.front().sizes();
  if (rows) return join_rows(parts);
  Tensors indices;
  Tensors values;
  for (const torch::Tensor& part : parts) {
    indices.push_back(part._indices());
    values.push_back(part._values());
  }
  return torch::_sparse_coo_tensor_unsafe(torch::cat(indices, 1), torch::cat(values, 0),
                                          parts.front().sizes())
      .coalesce();
}

}  // namespace pipewright
