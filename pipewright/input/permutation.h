#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

/// The numbers 0 to n - 1 in an order that n and the seed alone determine, on every machine.
///
/// Any place is computed by itself (a swap-or-not network, Hoang, Morris and Rogaway 2012): a file
/// of a billion samples is shuffled without a table, and a run resumes in the middle of an epoch
/// without going through what came before. About a quarter of a microsecond a place.
class Permutation {
 public:
  /// Throws InvalidArgument where n is below 1.
  Permutation(std::int64_t n, std::uint64_t seed);

  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

  /// What stands at `place`, 0 to n - 1.
  std::int64_t at(std::int64_t place) const;

 private:
  struct Round {
    std::uint64_t centre;  // x and centre - x (mod n) are partners
    std::uint64_t seed;    // of the coins: whether two partners change places
  };
  std::uint64_t size_;
  std::vector<Round> rounds_;
};

}  // namespace pipewright
