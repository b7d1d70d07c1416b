#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pipewright/data/source.h"
#include "pipewright/input/images.h"

namespace pipewright {

/// How bytes become numbers: (byte / 255 - mean) / deviation, by channel.
struct ImageScale {
  std::vector<double> mean = {0.5};       // one for all channels, or one each
  std::vector<double> deviation = {0.5};  // likewise; more than 0
};

/// Pictures for a classifier: inputs[0] (B, C, H, W) float, targets[0] (B) class numbers.
class ImageSource final : public DataSource {
 public:
  /// Throws InvalidArgument where the scale does not fit the channels.
  explicit ImageSource(std::shared_ptr<const ImageSet> images, const ImageScale& scale = {});

  std::int64_t size() const override { return images_->size(); }
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const ImageSet> images_;
  std::vector<float> table_;  // (C, 256): the number of each byte
};

}  // namespace pipewright
