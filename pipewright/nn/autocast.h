#pragma once

#include <torch/torch.h>

namespace pipewright {

/// What a forward computes in where that is safe: matrix products and convolutions in 16 bits,
/// reductions in 32. Weights, gradients of weights and optimizer state stay as they are.
enum class Precision { kFull, kBf16, kFp16 };

/// LibTorch's autocast on this thread while it lives; kFull: off. Casts of weights are not shared
/// between forwards: LibTorch keeps those in one table for all threads, where a stage could find
/// another stage's graph.
class AutocastScope {
 public:
  AutocastScope(torch::Device device, Precision precision);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  c10::DeviceType type_;
  bool was_enabled_;
  bool cache_was_enabled_;
  at::ScalarType was_dtype_;
};

}  // namespace pipewright
