#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

/// splitmix64's finaliser: a bijection in which every input bit moves half of the output bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t seed_from(std::initializer_list<std::uint64_t> words) {
  std::uint64_t seed = 0;
  for (const std::uint64_t word : words) seed = mix((seed + kGolden) ^ word);
  return seed;
}

std::uint64_t Draw::bits() { return mix(state_ += kGolden); }

std::uint64_t Draw::below(std::uint64_t n) {
  // 2^64 is no multiple of n: the first 2^64 mod n numbers would make some remainders likelier.
  const std::uint64_t surplus = (0 - n) % n;
  std::uint64_t drawn = bits();
  while (drawn < surplus) drawn = bits();
  return drawn % n;
}

double Draw::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Draw::bell() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

}  // namespace pipewright
