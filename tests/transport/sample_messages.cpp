#include <fmt/format.h>

#include "tests/transport/conformance.h"

namespace pipewright {
namespace {

using Samples = std::vector<std::pair<std::string, Message>>;

torch::Tensor counting(torch::IntArrayRef sizes, torch::ScalarType dtype = torch::kFloat32) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return torch::arange(count, torch::kFloat32).view(sizes).to(dtype);
}

/// Fifteen numbers of any dtype, by their bytes: not every one has kernels that make numbers.
torch::Tensor bytes_as(torch::ScalarType dtype) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  auto bytes = torch::arange(15 * size).to(torch::kByte);
  if (dtype == torch::kBool) bytes = bytes.bitwise_and(1);
  return bytes.view(dtype).view({3, 5});
}

/// Every dtype that this LibTorch has and a tensor with strides can have.
void add_dtypes(Samples* samples) {
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<torch::ScalarType>(i);
    if (dtype == torch::ScalarType::Undefined || c10::isQIntType(dtype)) continue;
    samples->push_back({c10::toString(dtype), {{bytes_as(dtype)}}});
  }
  samples->push_back({"bytes of every value", {{torch::arange(256).to(torch::kUInt8)}}});
  samples->push_back({"infinities", {{torch::tensor({1.0F, INFINITY, -INFINITY, -0.0F})}}});
}

void add_sizes(Samples* samples) {
  samples->push_back({"no dimensions", {{torch::tensor(3.5)}}});
  samples->push_back({"no rows", {{torch::empty({0, 4})}}});
  samples->push_back({"no columns", {{torch::empty({4, 0, 2}, torch::kInt64)}}});
  samples->push_back({"ten dimensions", {{counting({1, 2, 1, 2, 1, 3, 1, 1, 2, 1})}}});
  samples->push_back({"an odd number of bytes", {{counting({7}, torch::kUInt8), counting({3})}}});
}

void add_strides(Samples* samples) {
  samples->push_back({"transposed", {{counting({4, 6}).t()}}});
  samples->push_back({"permuted", {{counting({2, 3, 4}).permute({2, 0, 1})}}});
  samples->push_back(
      {"channels last", {{counting({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)}}});
  samples->push_back({"expanded", {{counting({3, 1}).expand({3, 8})}}});
  samples->push_back({"expanded from nothing", {{torch::tensor(2.0).expand({5, 2})}}});
  samples->push_back({"columns with gaps", {{counting({6, 10}).slice(1, 2, 9, 3)}}});
  samples->push_back({"rows in the middle", {{counting({9, 4}).slice(0, 3, 6)}}});
  samples->push_back({"a diagonal", {{counting({5, 5}).diagonal()}}});
  samples->push_back({"overlapping", {{counting({10}).unfold(0, 4, 1)}}});
  samples->push_back({"strange strides", {{torch::ones({1, 4}).as_strided({1, 3}, {77, 1})}}});
}

void add_views(Samples* samples) {
  const auto complex = torch::complex(counting({3, 4}), counting({3, 4}) + 1);
  samples->push_back({"conjugated", {{complex.conj()}}});
  samples->push_back({"conjugated and transposed", {{complex.conj().t()}}});
  samples->push_back({"negated", {{torch::imag(complex.conj())}}});
  samples->push_back({"real part", {{torch::real(complex)}}});
}

void add_numbers(Samples* samples) {
  samples->push_back({"no tensors", {}});
  samples->push_back({"an undefined one", {{torch::Tensor()}, {1}}});
  samples->push_back(
      {"several", {{counting({3}), torch::Tensor(), counting({2, 2}, torch::kBool)}, {1, 0, 0}}});
  samples->push_back({"no gradients", {{counting({3}), counting({4})}, {0, 0}}});
  samples->push_back({"the last gradient", {{counting({3}), counting({4})}, {0, 1}}});
  Message many;
  for (int i = 0; i < 40; ++i) {  // a description longer than its first message holds
    many.tensors.push_back(i % 5 == 0 ? torch::Tensor() : counting({i % 4, 2, 1}));
    many.needs_gradient.push_back(static_cast<char>(i % 2));
  }
  samples->push_back({"forty", many});
}

}  // namespace

Samples sample_messages() {
  Samples samples;
  add_dtypes(&samples);
  add_sizes(&samples);
  add_strides(&samples);
  add_views(&samples);
  add_numbers(&samples);
  return samples;
}

}  // namespace pipewright
