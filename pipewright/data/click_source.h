#pragma once

#include <cstdint>
#include <memory>

#include "pipewright/data/source.h"
#include "pipewright/input/clicks.h"

namespace pipewright {

/// Clicks for a model of click-through rates:
///
///     inputs[0]   (B, numbers) float
///     inputs[1]   (B, fields)  ids, 0 to buckets - 1 in every field; 0: missing
///     targets[0]  (B) float, 1 where clicked
class ClickSource final : public DataSource {
 public:
  explicit ClickSource(std::shared_ptr<const ClickSet> clicks);

  std::int64_t size() const override;
  SampleBatch batch(std::span<const std::int64_t> samples, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const ClickSet> clicks_;
};

}  // namespace pipewright
