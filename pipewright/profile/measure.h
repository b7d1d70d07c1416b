#pragma once

#include "pipewright/cost/profile.h"
#include "pipewright/nn/autocast.h"
#include "pipewright/nn/loss.h"
#include "pipewright/nn/sequence.h"
#include "pipewright/optim/optimizer.h"

namespace pipewright {

struct MeasureOptions {
  int repeats = 5;  // timed; medians are taken
  int warm_up = 2;  // before that
  Precision precision = Precision::kFull;
  std::string model = "model";      // a name, for people
  OptimizerFactory optimizer = {};  // its state and step are measured too, on copies
};

/// Measures a model's layers one after the other on one micro-batch, where the model is, in the
/// mode it is in: times of forward, backward and its halves, bytes of outputs, of what the backward
/// needs, of temporaries, of parameters and their gradients. The loss counts as part of the last
/// layer. Afterwards the model's state, gradients, mode and all generators are as before. Throws
/// what a layer throws.
Profile measure_profile(const Sequence& model, const Loss& loss, const Tensors& inputs,
                        const Tensors& targets, const MeasureOptions& options = {});

}  // namespace pipewright
