#pragma once

#include <cstdint>
#include <vector>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of a plain network of 3 x 3 convolutions. The defaults are VGG-16's.
struct VggOptions {
  std::vector<std::int64_t> convolutions = {2, 2, 3, 3, 3};     // by group; pooled after each group
  std::vector<std::int64_t> widths = {64, 128, 256, 512, 512};  // of their outputs, by group
  std::int64_t hidden = 4096;  // of the two linear layers before the last
  std::int64_t pooled = 7;     // height and width that the linear layers see
  std::int64_t channels = 3;   // of the pictures
  std::int64_t classes = 1000;
  std::int64_t image = 224;  // height and width
  double dropout = 0.5;      // before the linear layers but the first
  bool norm = false;         // a batch norm after each convolution
  bool later = false;        // as GptOptions::later
  std::uint64_t seed = 1;    // with `later`
};

/// A classifier as layers `conv1_1`, ..., `linear1`, `linear2`, `head`:
///
///     pictures (B, channels, image, image) --> logits (B, classes)
///
/// Every layer has a cost hint: multiply-adds a picture. Throws InvalidArgument where the sizes do
/// not fit.
Sequence make_vgg(const VggOptions& options);

}  // namespace pipewright
