#include "pipewright/input/permutation.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

/// A round leaves half of what is not yet random; this many do for any size a file can have.
constexpr int kRounds = 96;

}  // namespace

Permutation::Permutation(std::int64_t n, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(n)) {
  if (n < 1) throw InvalidArgument("data", fmt::format("{} samples cannot be shuffled", n));
  Draw draw(seed);
  rounds_.resize(kRounds);
  for (Round& round : rounds_) {
    round.centre = draw.below(size_);
    round.seed = draw.bits();
  }
}

std::int64_t Permutation::at(std::int64_t place) const {
  auto x = static_cast<std::uint64_t>(place);
  internal_check(place >= 0 && x < size_, "a place of a permutation that it does not have");
  for (const Round& round : rounds_) {
    // Both below size_ (less than 2^63), so neither line overflows.
    const std::uint64_t partner = round.centre >= x ? round.centre - x : round.centre + size_ - x;
    const std::uint64_t pair = std::max(x, partner);  // the same coin for both
    if ((Draw(round.seed ^ pair).bits() & 1) != 0) x = partner;
  }
  return static_cast<std::int64_t>(x);
}

}  // namespace pipewright
