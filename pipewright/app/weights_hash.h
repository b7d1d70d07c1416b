#pragma once

#include <string>

#include "pipewright/checkpoint/tensor_set.h"
#include "pipewright/nn/outline.h"

namespace pipewright::app {

/// SHA-256 over names, types, shapes and bytes of a checkpoint's weights, in layer order: runs that
/// ended with the same weights have the same, however many processes they had.
std::string weights_hash(const TensorSet& weights, const Sequence& model);

}  // namespace pipewright::app
