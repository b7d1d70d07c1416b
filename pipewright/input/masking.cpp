#include "pipewright/input/masking.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// Any token that text may have.
std::int64_t other_token(const Tokenizer& tokenizer, Draw* draw) {
  for (;;) {
    const auto token = static_cast<std::int32_t>(draw->index(tokenizer.size()));
    if (!tokenizer.is_special(token)) return token;
  }
}

/// The places of tokens that may be hidden.
std::vector<std::int64_t> candidates(std::span<const std::int64_t> tokens,
                                     const Tokenizer& tokenizer) {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokenizer.is_special(static_cast<std::int32_t>(tokens[i]))) {
      places.push_back(static_cast<std::int64_t>(i));
    }
  }
  return places;
}

/// The first `count` of the places become a random choice of them, in increasing order.
void choose(std::vector<std::int64_t>* places, std::size_t count, Draw* draw) {
  for (std::size_t i = 0; i < count; ++i) {
    std::swap((*places)[i], (*places)[i + draw->below(places->size() - i)]);
  }
  places->resize(count);
  std::sort(places->begin(), places->end());
}

}  // namespace

void check(const MaskOptions& options) {
  const bool shares = options.chosen > 0 && options.chosen <= 1 && options.masked >= 0 &&
                      options.changed >= 0 && options.masked + options.changed <= 1 + 1e-12;
  if (shares) return;
  throw InvalidArgument("data", fmt::format("chosen = {}, masked = {}, changed = {}; they are "
                                            "shares from 0 to 1, chosen more than 0, the other two "
                                            "together at most 1",
                                            options.chosen, options.masked, options.changed));
}

std::int64_t num_chosen(std::int64_t length, const MaskOptions& options) {
  const auto rounded =
      static_cast<std::int64_t>(std::floor(options.chosen * static_cast<double>(length) + 0.5));
  return std::clamp<std::int64_t>(rounded, 1, length);
}

void mask_tokens(std::span<std::int64_t> tokens, const Tokenizer& tokenizer,
                 const MaskOptions& options, Draw* draw, std::int64_t none,
                 std::span<std::int64_t> positions, std::span<std::int64_t> originals) {
  std::vector<std::int64_t> places = candidates(tokens, tokenizer);
  choose(&places, std::min(places.size(), positions.size()), draw);
  std::fill(positions.begin(), positions.end(), 0);
  std::fill(originals.begin(), originals.end(), none);
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::int64_t& token = tokens[static_cast<std::size_t>(places[i])];
    positions[i] = places[i];
    originals[i] = token;
    const double fate = draw->uniform();
    if (fate < options.masked) {
      token = tokenizer.mask();
    } else if (fate < options.masked + options.changed) {
      token = other_token(tokenizer, draw);
    }
  }
}

}  // namespace pipewright
