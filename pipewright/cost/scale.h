#pragma once

#include <span>

#include "pipewright/cost/profile.h"

namespace pipewright {

/// What the layers would cost for another micro-batch: times for `rows` samples on average, bytes
/// for the largest, `most_rows`. `profiles` are of one model, in increasing order of their
/// micro-batch size. Times and activations follow straight lines between the sizes that were
/// measured; beyond the largest, times are in proportion to the size, and with one profile all are.
/// Parameters and the optimizer do not change. Throws InvalidArgument where the profiles are of
/// different models or not in order.
Profile scale_profile(std::span<const Profile> profiles, double rows, int most_rows);

}  // namespace pipewright
