#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pipewright/input/images.h"

namespace pipewright {

/// Pictures of stripes, in noise. Their direction and width is the class; where the stripes begin,
/// their strength and their colours differ from picture to picture, so that no pixel by itself says
/// anything of the class.
class GeneratedImages final : public ImageSet {
 public:
  /// Throws InvalidArgument for less than one picture, or sizes below 8.
  GeneratedImages(std::int64_t images, int channels, int size, std::uint64_t seed);

  std::int64_t size() const override { return images_; }
  std::array<std::int64_t, 3> shape() const override { return {channels_, side_, side_}; }
  int classes() const override { return 10; }
  int label(std::int64_t image) const override;
  void read(std::int64_t image, std::span<std::byte> into) const override;

 private:
  std::int64_t images_;
  int channels_;
  int side_;
  std::uint64_t seed_;
};

}  // namespace pipewright
