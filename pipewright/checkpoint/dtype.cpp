#include "pipewright/checkpoint/dtype.h"

namespace pipewright {
namespace {

struct Row {
  std::string_view name;
  std::int64_t bytes;
};

// By DType.
constexpr std::array kRows = {Row{"BOOL", 1},    Row{"U8", 1},  Row{"I8", 1},  Row{"F8_E5M2", 1},
                              Row{"F8_E4M3", 1}, Row{"I16", 2}, Row{"U16", 2}, Row{"F16", 2},
                              Row{"BF16", 2},    Row{"I32", 4}, Row{"U32", 4}, Row{"F32", 4},
                              Row{"F64", 8},     Row{"I64", 8}, Row{"U64", 8}};
static_assert(kRows.size() == kAllDTypes.size());

const Row& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::int64_t dtype_bytes(DType dtype) { return row(dtype).bytes; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (dtype_name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace pipewright
