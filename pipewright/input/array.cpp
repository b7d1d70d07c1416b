#include "pipewright/input/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/input/idx.h"
#include "pipewright/input/npy.h"

namespace pipewright {
namespace {

/// An element's bytes in this machine's order.
void to_native(std::span<std::byte> bytes, std::size_t element_bytes, bool big_endian) {
  if (big_endian == (std::endian::native == std::endian::big) || element_bytes == 1) return;
  for (std::size_t i = 0; i < bytes.size(); i += element_bytes) {
    const auto element = bytes.subspan(i, element_bytes);
    std::reverse(element.begin(), element.end());
  }
}

template <typename To, typename From>
void widen(std::span<const std::byte> from, std::span<std::byte> to) {
  for (std::size_t i = 0; i * sizeof(From) < from.size(); ++i) {
    From value = 0;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    const auto wide = static_cast<To>(value);
    std::memcpy(to.data() + i * sizeof(To), &wide, sizeof(To));
  }
}

/// The first of the numbers that is 2^63 or more, or as many as there are.
std::size_t first_too_large(std::span<const std::byte> numbers) {
  for (std::size_t i = 0; i < numbers.size() / 8; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, numbers.data() + i * 8, 8);
    if (value >> 63 != 0) return i;
  }
  return numbers.size() / 8;
}

std::size_t size_of(DType dtype) { return static_cast<std::size_t>(dtype_bytes(dtype)); }

}  // namespace

ArrayFile::ArrayFile(DataFile file, ArrayLayout layout)
    : file_(std::move(file)), layout_(std::move(layout)) {
  if (layout_.shape.empty()) {
    throw InvalidArgument("data", fmt::format("'{}' holds one number, not an array with rows; save "
                                              "it with at least one dimension",
                                              path()));
  }
  if (rows() == 0) {
    throw InvalidArgument("data", fmt::format("'{}' holds an array of 0 rows", path()));
  }
  for (const std::int64_t size : row_shape()) row_elements_ *= size;
  if (layout_.column_major && layout_.shape.size() > 1) read_column_major();
}

/// Turns the whole array around: source index (i0, i1, ...) lies at i0 + n0 * (i1 + n1 * ...).
void ArrayFile::read_column_major() {
  const std::size_t element = size_of(layout_.dtype);
  const auto elements = static_cast<std::size_t>(rows() * row_elements_);
  std::vector<std::byte> raw(elements * element);
  file_.read(layout_.data_start, raw);
  whole_.resize(raw.size());
  std::vector<std::int64_t> index(layout_.shape.size(), 0);
  for (std::size_t from = 0; from < elements; ++from) {
    std::int64_t to = 0;
    for (std::size_t d = 0; d < index.size(); ++d) to = to * layout_.shape[d] + index[d];
    std::memcpy(whole_.data() + static_cast<std::size_t>(to) * element, raw.data() + from * element,
                element);
    for (std::size_t d = 0; d < index.size() && ++index[d] == layout_.shape[d]; ++d) index[d] = 0;
  }
}

DType ArrayFile::dtype() const {
  switch (layout_.dtype) {
    case DType::kU16: return DType::kI32;
    case DType::kU32:
    case DType::kU64: return DType::kI64;
    default: return layout_.dtype;
  }
}

std::int64_t ArrayFile::row_bytes() const { return row_elements_ * dtype_bytes(dtype()); }

std::vector<std::byte> ArrayFile::raw_row(std::int64_t row) const {
  const std::size_t bytes = static_cast<std::size_t>(row_elements_) * size_of(layout_.dtype);
  std::vector<std::byte> raw(bytes);
  if (whole_.empty()) {
    file_.read(layout_.data_start + row * static_cast<std::int64_t>(bytes), raw);
  } else {
    std::copy_n(whole_.begin() + row * static_cast<std::ptrdiff_t>(bytes), bytes, raw.begin());
  }
  to_native(raw, size_of(layout_.dtype), layout_.big_endian);
  return raw;
}

void ArrayFile::read(std::int64_t row, std::span<std::byte> into) const {
  internal_check(row >= 0 && row < rows(), "a row that the array does not have");
  internal_check(static_cast<std::int64_t>(into.size()) == row_bytes(), "room for another row");
  const std::vector<std::byte> raw = raw_row(row);
  switch (layout_.dtype) {
    case DType::kU16: widen<std::int32_t, std::uint16_t>(raw, into); break;
    case DType::kU32: widen<std::int64_t, std::uint32_t>(raw, into); break;
    case DType::kU64: {
      const std::size_t at = first_too_large(raw);
      if (at * 8 < raw.size()) {
        throw InvalidArgument("data", fmt::format("'{}' row {}, element {}: a number of 2^63 or "
                                                  "more does not fit a tensor",
                                                  path(), row, at));
      }
      [[fallthrough]];
    }
    default: std::copy(raw.begin(), raw.end(), into.begin());
  }
}

ArrayFile open_npy(const std::string& path) {
  DataFile file(path);
  ArrayLayout layout = parse_npy_header(file.read_some(0, kMostNpyHeaderBytes), file.size(), path);
  return {std::move(file), std::move(layout)};
}

ArrayFile open_idx(const std::string& path) {
  DataFile file(path);
  ArrayLayout layout = parse_idx_header(file.read_some(0, kMostIdxHeaderBytes), file.size(), path);
  return {std::move(file), std::move(layout)};
}

ArrayFile open_safetensors(const std::string& path, const std::string& name) {
  const SafetensorsFile tensors(path, Links::kFollow);
  const TensorRecord* record = tensors.find(name);
  if (record == nullptr) {
    std::string names;
    for (const TensorRecord& other : tensors.header().tensors) names += " '" + other.name + "'";
    throw InvalidArgument("data",
                          fmt::format("'{}' has no tensor '{}'; it has:{}", path, name, names));
  }
  ArrayLayout layout;
  layout.dtype = record->dtype;
  layout.shape = record->shape;
  layout.data_start = tensors.data_start() + record->begin;
  return {DataFile(path), std::move(layout)};
}

}  // namespace pipewright
