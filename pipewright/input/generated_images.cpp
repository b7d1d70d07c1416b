#include "pipewright/input/generated_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

constexpr int kLeastSide = 8;
constexpr double kNoise = 24;  // of 255: deviation

/// How the brightness moves with a step to the right and down, in periods: direction and width of a
/// class's stripes.
struct Stripes {
  double right;
  double down;
};
constexpr std::array<Stripes, 10> kClasses = {{{0.25, 0},
                                               {0, 0.25},
                                               {0.125, 0},
                                               {0, 0.125},
                                               {0.1875, 0.1875},
                                               {0.1875, -0.1875},
                                               {0.25, 0.125},
                                               {0.125, 0.25},
                                               {0.25, -0.125},
                                               {0.125, -0.25}}};

/// From -1 to 1 and back over a period: a wave without sines, whose last bits differ by machine.
double wave(double periods) {
  const double part = periods - std::floor(periods);
  return part < 0.5 ? 4 * part - 1 : 3 - 4 * part;
}

std::byte to_byte(double value) {
  return static_cast<std::byte>(static_cast<int>(std::clamp(value, 0.0, 255.0)));
}

}  // namespace

GeneratedImages::GeneratedImages(std::int64_t images, int channels, int size, std::uint64_t seed)
    : images_(images), channels_(channels), side_(size), seed_(seed) {
  if (images < 1 || channels < 1 || size < kLeastSide) {
    throw InvalidArgument("data", fmt::format("{} pictures of {} channels and {} x {}; there must "
                                              "be one of each, and a size of {}",
                                              images, channels, size, size, kLeastSide));
  }
}

int GeneratedImages::label(std::int64_t image) const {
  Draw draw(seed_from({seed_, static_cast<std::uint64_t>(image)}));
  return static_cast<int>(draw.index(classes()));
}

void GeneratedImages::read(std::int64_t image, std::span<std::byte> into) const {
  internal_check(into.size() == image_bytes(), "room for another picture");
  const Stripes& stripes = kClasses.at(static_cast<std::size_t>(label(image)));
  Draw draw(seed_from({seed_, static_cast<std::uint64_t>(image), 1}));
  const double start = draw.uniform();
  std::size_t at = 0;
  for (int channel = 0; channel < channels_; ++channel) {
    const double middle = 96 + 64 * draw.uniform();
    const double strength = (draw.chance(0.5) ? 1 : -1) * (48 + 32 * draw.uniform());
    for (int y = 0; y < side_; ++y) {
      for (int x = 0; x < side_; ++x) {
        const double shade = wave(start + stripes.right * x + stripes.down * y);
        into[at++] = to_byte(middle + strength * shade + kNoise * draw.bell());
      }
    }
  }
}

}  // namespace pipewright
