#pragma once

#include <functional>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// A micro-batch's loss as a sum and what it is a sum over (samples, unmasked tokens). The engine
/// divides by the mini-batch's weight, so that uneven micro-batches count by their true share.
struct LossValue {
  torch::Tensor sum;  // one number, with its graph
  double weight = 0;  // not looked at where Loss::weight tells it
};

struct Loss {
  std::function<LossValue(const Tensors& outputs, const Tensors& targets)> value;
  /// The weight from the targets alone, if it can be told: then gradients are divided before they
  /// are made instead of afterwards, and a GPU need not be waited for. Empty: rows are assumed, and
  /// corrected when value() has told.
  std::function<double(const Tensors& targets)> weight;
};

/// Mean squared error over samples: (outputs[0] - targets[0])^2 summed over everything else and
/// averaged over it.
Loss mean_squared_error();

/// Mean cross entropy of logits outputs[0] (rows, classes) or (rows, ..., classes) against
/// targets[0] of class numbers, over the targets that are not `ignore`.
Loss cross_entropy(std::int64_t ignore = -100);

/// Mean cross entropy of logits outputs[0] against targets[0] from 0 to 1, of as many elements,
/// over samples: summed over everything else.
Loss binary_cross_entropy();

}  // namespace pipewright
