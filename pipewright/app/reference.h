#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/train/batch.h"

namespace pipewright::app {

/// Names and tensors, in layer order.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// What training must come to, written without the engine: a plain loop over layers and backward().
struct PlainGradients {
  double loss = 0;
  NamedTensors gradients;  // undefined where a parameter has none
};

/// Of the mean loss over the batch in `parts` micro-batches, on the device the model is on. Random
/// draws as the engine keys them for its first step. The model's gradients are taken and cleared.
PlainGradients plain_gradients(const Sequence& model, const Loss& loss, const Batch& batch,
                               int parts, std::uint64_t seed);

/// Whether what a layer makes of a row depends on more than the row: it draws at random, or keeps
/// statistics of a batch in its buffers. Then single-device training must see micro-batches too.
bool sees_micro_batches(const Sequence& model, const Batch& batch);

/// Why results differ, as far as running the layers alone tells: the first layer that gives other
/// outputs when it is run again, or, with `whole`, for parts of a batch than for all of it. In
/// words; empty where there is none.
std::string layer_apart(const Sequence& model, const Batch& batch, int parts, std::uint64_t seed,
                        bool whole, double tolerance);

}  // namespace pipewright::app
