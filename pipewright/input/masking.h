#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipewright/input/draw.h"
#include "pipewright/input/tokenizer.h"

namespace pipewright {

/// What is hidden from a masked language model, as BERT does it.
struct MaskOptions {
  double chosen = 0.15;  // of the tokens, to be predicted
  double masked = 0.8;   // of the chosen ones: mask() stands in their place
  double changed = 0.1;  // of the chosen ones: any other token does; the rest stays as it is
};

/// Throws InvalidArgument where the shares are none.
void check(const MaskOptions& options);

/// The tokens to be predicted of a row of `length`: `chosen` of them, rounded, and at least one.
std::int64_t num_chosen(std::int64_t length, const MaskOptions& options);

/// Chooses `positions.size()` of the tokens that are not special, in increasing order, writes down
/// what they are and hides them. Where there are fewer to choose from, the remaining positions are
/// 0 and their originals `none`.
void mask_tokens(std::span<std::int64_t> tokens, const Tokenizer& tokenizer,
                 const MaskOptions& options, Draw* draw, std::int64_t none,
                 std::span<std::int64_t> positions, std::span<std::int64_t> originals);

}  // namespace pipewright
