#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipewright/transport/transport.h"

namespace pipewright {

/// One fact that holds for every transport. Each rank calls `body` on a thread or in a process of
/// its own; what does not hold is thrown.
struct ConformanceCase {
  std::string name;
  std::function<void(Transport&, int rank, int num_ranks)> body;
};

/// Stages may go up to this number.
inline constexpr int kConformanceStages = 8;
inline constexpr int kConformanceRanks = 3;

/// Those that leave the transport as it was.
const std::vector<ConformanceCase>& conformance_cases();

/// Runs a body on a thread a rank; what each of them threw, or nothing.
std::vector<std::string> on_threads(const ConformanceCase& one, Transport& transport);

/// Throws where the tensors are not the same: defined or not, dtype, sizes, strides, every value.
void expect_same(const torch::Tensor& got, const torch::Tensor& expected, const std::string& what);
void expect_same(const Message& got, const Message& expected, const std::string& what);
void expect_that(bool holds, const std::string& what);

/// Messages by name with every kind of tensor that a transport must carry.
std::vector<std::pair<std::string, Message>> sample_messages();

}  // namespace pipewright
