#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pipewright {

/// Pictures in which every pixel has a class: 0 around, 1 in a disc, 2 in a square. One of each
/// lies anywhere, the square over the disc. Both are as light as each other, lighter or darker than
/// what is around them by the picture, and there is noise: only the shape tells them apart.
class GeneratedSegments {
 public:
  /// Throws InvalidArgument for less than one picture, or sizes below 8.
  GeneratedSegments(std::int64_t images, int channels, int size, std::uint64_t seed);

  std::int64_t size() const { return images_; }
  std::array<std::int64_t, 3> shape() const { return {channels_, side_, side_}; }
  static int classes() { return 3; }

  /// Fills `pixels` channel by channel, row by row, and `classes`, one a pixel.
  void read(std::int64_t image, std::span<std::byte> pixels, std::span<std::uint8_t> classes) const;

 private:
  std::int64_t images_;
  int channels_;
  int side_;
  std::uint64_t seed_;
};

}  // namespace pipewright
