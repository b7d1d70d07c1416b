#pragma once

#include "pipewright/train/trainer.h"

/// Compares the pipeline's gradients with plain single-device ones: the same layers called one
/// after the other on the whole batch, and one backward. In float64, where rounding cannot hide a
/// mistake. Returns the largest difference of any parameter's gradient, relative to the largest
/// entry of that gradient; of several processes, each of its own parameters.
///
/// The model must draw nothing at random (no dropout). It is turned into float64 and left with
/// gradients.
double gradient_difference(const pipewright::Sequence& model, const pipewright::Batch& batch,
                           const pipewright::Strategy& strategy);
