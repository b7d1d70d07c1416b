#include "pipewright/data/segment_source.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pipewright {

SegmentSource::SegmentSource(std::shared_ptr<const GeneratedSegments> images)
    : images_(std::move(images)) {}

SampleBatch SegmentSource::batch(std::span<const std::int64_t> samples,
                                 std::int64_t /*epoch*/) const {
  const auto [channels, height, width] = images_->shape();
  const auto rows = static_cast<std::int64_t>(samples.size());
  const auto pixels = torch::empty({rows, channels, height, width}, torch::kFloat32);
  const auto classes = torch::empty({rows, height, width}, torch::kInt64);
  auto* pixel = pixels.data_ptr<float>();
  auto* kind = classes.data_ptr<std::int64_t>();
  std::vector<std::byte> bytes(static_cast<std::size_t>(channels * height * width));
  std::vector<std::uint8_t> kinds(static_cast<std::size_t>(height * width));
  for (const std::int64_t sample : samples) {
    images_->read(sample, bytes, kinds);
    pixel = std::transform(bytes.begin(), bytes.end(), pixel, [](std::byte byte) {
      return static_cast<float>(std::to_integer<int>(byte) / 127.5 - 1);
    });
    kind = std::copy(kinds.begin(), kinds.end(), kind);
  }
  return {{pixels}, {classes}};
}

}  // namespace pipewright
