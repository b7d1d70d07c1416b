#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of a residual network of bottleneck blocks. The defaults are ResNet-50's; ResNet-101 has
/// blocks = {3, 4, 23, 3}.
struct ResNetOptions {
  std::vector<std::int64_t> blocks = {3, 4, 6, 3};  // by group; each group halves the picture
  std::int64_t width = 64;    // of the first group's bottlenecks; each group doubles it
  std::int64_t channels = 3;  // of the pictures
  std::int64_t classes = 1000;
  std::int64_t image = 224;   // height and width, for the cost hints
  bool small_images = false;  // a stem that keeps the size, for pictures of 32 x 32, say
  bool later = false;         // as GptOptions::later
  std::uint64_t seed = 1;     // with `later`
};

/// A classifier as layers `stem`, `block1_1`, ..., `head`:
///
///     pictures (B, channels, H, W) --> logits (B, classes)
///
/// The stride is in the 3 x 3 convolution of a group's first block. The last norm of a block starts
/// at zero, so that blocks start as what they are added to. Every layer has a cost hint:
/// multiply-adds a picture. Throws InvalidArgument where the sizes do not fit.
Sequence make_resnet(const ResNetOptions& options);

}  // namespace pipewright
