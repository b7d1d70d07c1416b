#pragma once

#include <cstdint>
#include <initializer_list>

namespace pipewright {

/// A seed from a few words (a run's seed, an epoch, a sample): unrelated ones for words that differ
/// in one bit. Fixed for all time: a resumed run must draw what the first would have.
std::uint64_t seed_from(std::initializer_list<std::uint64_t> words);

/// Random numbers from a seed, the same on every machine: the standard library's distributions
/// differ between machines, and so do sines and logarithms. Not for secrets.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();

  /// A number from 0 to n - 1, each as likely as the others; n is at least 1.
  std::uint64_t below(std::uint64_t n);

  /// As below(), for places in lists and tensors.
  std::int64_t index(std::int64_t n) {
    return static_cast<std::int64_t>(below(static_cast<std::uint64_t>(n)));
  }

  /// At least 0, less than 1.
  double uniform();

  bool chance(double probability) { return uniform() < probability; }

  /// About normal, of mean 0 and deviation 1: a sum of twelve uniform numbers, so within +-6.
  double bell();

 private:
  std::uint64_t state_;
};

}  // namespace pipewright
