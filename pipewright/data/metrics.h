#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "pipewright/data/token_source.h"

namespace pipewright {

/// How many of some predictions are right; add them up over batches.
struct Accuracy {
  std::int64_t correct = 0;
  std::int64_t counted = 0;

  double share() const;  // 0 where none are counted
  Accuracy& operator+=(const Accuracy& other);
};

/// Of logits (..., classes) whose largest is at the class number in `targets` (...); targets that
/// are `ignored` do not count. Throws InvalidArgument where the shapes do not fit.
Accuracy accuracy(const torch::Tensor& logits, const torch::Tensor& targets,
                  std::int64_t ignored = kIgnoredTarget);

/// area_under_curve() of tensors with as many elements; labels are 0 and 1, of any type. Throws
/// InvalidArgument likewise.
std::optional<double> area_under_curve(const torch::Tensor& scores, const torch::Tensor& labels);

}  // namespace pipewright
