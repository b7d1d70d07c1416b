#pragma once

#include <cstdint>
#include <memory>

#include "pipewright/data/source.h"
#include "pipewright/input/generated_segments.h"

namespace pipewright {

/// Pictures whose pixels have classes: inputs[0] (B, C, H, W) float from -1 to 1, targets[0]
/// (B, H, W) class numbers.
class SegmentSource final : public DataSource {
 public:
  explicit SegmentSource(std::shared_ptr<const GeneratedSegments> images);

  std::int64_t size() const override { return images_->size(); }
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const GeneratedSegments> images_;
};

}  // namespace pipewright
