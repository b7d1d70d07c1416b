#pragma once

#include <cstdint>

#include "pipewright/nn/sequence.h"

namespace pipewright {

/// Sizes of AmoebaNet-D(layers, filters), as the GPipe paper names them.
struct AmoebaNetOptions {
  std::int64_t layers = 18;    // normal cells; a multiple of 3
  std::int64_t filters = 256;  // a multiple of 16
  std::int64_t channels = 3;   // of the pictures
  std::int64_t classes = 1000;
  std::int64_t image = 224;  // height and width, for the cost hints
  bool later = false;        // as GptOptions::later
  std::uint64_t seed = 1;    // with `later`
};

/// A classifier as layers `stem1` (a convolution), `stem2`, `stem3` (reduction cells), three groups
/// `cell1_1`, ... of normal cells with a reduction cell `reduce1`, `reduce2` between them, `head`:
///
///     pictures (B, channels, H, W) --> logits (B, classes)
///
/// A cell works on what the two cells before it gave, so that two tensors pass from layer to layer.
/// A reduction cell halves the picture and doubles the width. The cells are those of the
/// reference implementation (a normal cell joins its states 0, 3, 4 and 6), with which the
/// published parameter counts come out. Every layer has a cost hint: multiply-adds a picture.
/// Throws InvalidArgument where the sizes do not fit.
Sequence make_amoebanet(const AmoebaNetOptions& options);

}  // namespace pipewright
