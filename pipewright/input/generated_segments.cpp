#include "pipewright/input/generated_segments.h"

#include <fmt/format.h>

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

constexpr int kLeastSide = 8;
constexpr int kShapes = 1;     // of each kind
constexpr double kNoise = 20;  // of 255: deviation

/// A disc or a square, by its middle and half its width, in pixels.
struct Shape {
  double x, y, reach;

  Shape(int side, Draw* draw)
      : x(side * draw->uniform()),
        y(side * draw->uniform()),
        reach(side * (0.2 + 0.1 * draw->uniform())) {}

  bool disc_has(double px, double py) const {
    return (px - x) * (px - x) + (py - y) * (py - y) < reach * reach;
  }
  bool square_has(double px, double py) const {
    return std::max(px > x ? px - x : x - px, py > y ? py - y : y - py) < reach;
  }
};

std::byte to_byte(double value) {
  return static_cast<std::byte>(static_cast<int>(std::clamp(value, 0.0, 255.0)));
}

void paint(int side, Draw* draw, std::span<std::uint8_t> classes) {
  for (int i = 0; i < 2 * kShapes; ++i) {
    const bool disc = i < kShapes;
    const Shape shape(side, draw);
    std::size_t at = 0;
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x, ++at) {
        if (disc ? shape.disc_has(x, y) : shape.square_has(x, y))
          classes[at] = static_cast<std::uint8_t>(disc ? 1 : 2);
      }
    }
  }
}

}  // namespace

GeneratedSegments::GeneratedSegments(std::int64_t images, int channels, int size,
                                     std::uint64_t seed)
    : images_(images), channels_(channels), side_(size), seed_(seed) {
  if (images < 1 || channels < 1 || size < kLeastSide) {
    throw InvalidArgument("data", fmt::format("{} pictures of {} channels and {} x {}; there must "
                                              "be one of each, and a size of {}",
                                              images, channels, size, size, kLeastSide));
  }
}

void GeneratedSegments::read(std::int64_t image, std::span<std::byte> pixels,
                             std::span<std::uint8_t> classes) const {
  const auto area = static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_);
  internal_check(
      classes.size() == area && pixels.size() == static_cast<std::size_t>(channels_) * area,
      "room for another picture");
  std::fill(classes.begin(), classes.end(), std::uint8_t{0});
  Draw draw(seed_from({seed_, static_cast<std::uint64_t>(image), 2}));
  paint(side_, &draw, classes);
  std::size_t at = 0;
  for (int channel = 0; channel < channels_; ++channel) {
    // Discs and squares are as light as each other, and lighter or darker than what is around.
    const double around = 96 + 64 * draw.uniform();
    const double shapes = around + (draw.chance(0.5) ? 1 : -1) * (64 + 32 * draw.uniform());
    for (const std::uint8_t kind : classes)
      pixels[at++] = to_byte((kind == 0 ? around : shapes) + kNoise * draw.bell());
  }
}

}  // namespace pipewright
