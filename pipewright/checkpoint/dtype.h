#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pipewright {

/// The element types of safetensors files.
enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

inline constexpr std::array kAllDTypes = {DType::kBool,   DType::kU8,  DType::kI8,  DType::kF8E5M2,
                                          DType::kF8E4M3, DType::kI16, DType::kU16, DType::kF16,
                                          DType::kBF16,   DType::kI32, DType::kU32, DType::kF32,
                                          DType::kF64,    DType::kI64, DType::kU64};

/// The name in a file: BOOL, U8, BF16, F8_E4M3.
std::string_view dtype_name(DType dtype);

/// The type of that name, if there is one.
std::optional<DType> parse_dtype(std::string_view name);

/// Bytes of one element.
std::int64_t dtype_bytes(DType dtype);

}  // namespace pipewright
