#pragma once

#include <vector>

#include "pipewright/cost/profile.h"
#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Gives layers that are alike one time each for forward, backward, its halves and the update: the
/// mean of theirs. Measured a few times each they differ by some percent, and a plan would run the
/// seemingly fast ones again. Alike are modules of one class whose parameters have the same shapes
/// and that take and leave the same bytes; the first layer, which passes no gradient on, and the
/// last, which has the loss, are alike to no other. One whose times are far from the others' keeps
/// its own: what makes it so is in no byte.
void share_times_of_alike(const Sequence& model, std::vector<LayerCost>* costs);

}  // namespace pipewright
