#include "pipewright/data/image_source.h"

#include <fmt/format.h>

#include <utility>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr int kBytes = 256;

void check_scale(const ImageScale& scale, std::size_t channels) {
  for (const auto* numbers : {&scale.mean, &scale.deviation}) {
    if (numbers->size() == 1 || numbers->size() == channels) continue;
    throw InvalidArgument("data", fmt::format("a mean or deviation of {} numbers for pictures of "
                                              "{} channels; give one, or one each",
                                              numbers->size(), channels));
  }
  for (const double deviation : scale.deviation) {
    if (deviation > 0) continue;
    throw InvalidArgument("data", fmt::format("a deviation of {}; use more than 0", deviation));
  }
}

double of_channel(const std::vector<double>& numbers, std::size_t channel) {
  return numbers.size() == 1 ? numbers.front() : numbers[channel];
}

}  // namespace

ImageSource::ImageSource(std::shared_ptr<const ImageSet> images, const ImageScale& scale)
    : images_(std::move(images)) {
  const auto channels = static_cast<std::size_t>(images_->shape()[0]);
  check_scale(scale, channels);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (int byte = 0; byte < kBytes; ++byte) {
      table_.push_back(static_cast<float>((byte / 255.0 - of_channel(scale.mean, channel)) /
                                          of_channel(scale.deviation, channel)));
    }
  }
}

SampleBatch ImageSource::batch(std::span<const std::int64_t> samples,
                               std::int64_t /*epoch*/) const {
  const auto [channels, height, width] = images_->shape();
  const auto rows = static_cast<std::int64_t>(samples.size());
  const auto pixels = torch::empty({rows, channels, height, width}, torch::kFloat32);
  const auto labels = torch::empty({rows}, torch::kInt64);
  auto* number = pixels.data_ptr<float>();
  auto* label = labels.data_ptr<std::int64_t>();
  std::vector<std::byte> bytes(images_->image_bytes());
  const auto channel_bytes = static_cast<std::size_t>(height * width);
  for (const std::int64_t sample : samples) {
    images_->read(sample, bytes);
    *label++ = images_->label(sample);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      *number++ = table_[i / channel_bytes * kBytes + std::to_integer<std::size_t>(bytes[i])];
    }
  }
  return {{pixels}, {labels}};
}

}  // namespace pipewright
