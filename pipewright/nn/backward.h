#pragma once

#include <memory>

#include "pipewright/nn/tensors.h"

namespace pipewright {

/// What the weight half of a split backward still has to do. Move only; dropping it frees what it holds.
class WeightHalf;

/// The whole backward of one segment: from `outputs` with `output_gradients` (as many; undefined where no
/// gradient came) to the gradients of `inputs` (leaves; undefined result where an input needs none or got
/// none), and to the .grad of every parameter that the segment used.
///
/// `separate`: parameters whose gradient is returned in `separate_gradients` instead of added to .grad:
/// those that other segments, perhaps on other threads, use too.
struct BackwardResult {
  Tensors input_gradients;
  Tensors separate_gradients;  // as many as `separate`; undefined where there is none
};
BackwardResult backward(const Tensors& outputs, const Tensors& output_gradients, const Tensors& inputs,
                        const Tensors& separate = {});

}  // namespace pipewright
