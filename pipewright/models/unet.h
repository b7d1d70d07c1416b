#pragma once

#include <cstdint>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of the simplified U-Net that torchgpipe measures: (B, C) there is (convolutions, width).
struct UNetOptions {
  std::int64_t depth = 5;         // times the picture is halved
  std::int64_t convolutions = 5;  // of every step down or up
  std::int64_t width = 64;        // of the first step; each step down doubles it. Even.
  std::int64_t channels = 3;      // of the pictures
  std::int64_t classes = 1;       // of a pixel
  std::int64_t image = 192;       // height and width
  double dropout = 0.1;           // of whole channels
  bool later = false;             // as GptOptions::later
  std::uint64_t seed = 1;         // with `later`
};

/// A classifier of pixels as layers `down1_1`, ..., `bottom_1`, ..., `up1_1`, ..., `segment`:
///
///     pictures (B, channels, H, W) --> logits (B, H, W, classes)
///
///     down1 ------------------------ up1 - segment      H x W
///        down2 ----------------- up2                  H/2 x W/2
///              bottom                                 ...
///
/// What a step down saw at full size goes by a skip to the step up of that size, past everything
/// between. Convolutions are followed by dropout, instance norm and a leaky ReLU. Every layer has
/// a cost hint: multiply-adds a picture. Throws InvalidArgument where the sizes do not fit.
Sequence make_unet(const UNetOptions& options);

}  // namespace pipewright
