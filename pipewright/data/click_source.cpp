#include "pipewright/data/click_source.h"

#include <algorithm>
#include <utility>

#include "pipewright/data/rows.h"

namespace pipewright {

ClickSource::ClickSource(std::shared_ptr<const ClickSet> clicks) : clicks_(std::move(clicks)) {}

std::int64_t ClickSource::size() const { return clicks_->size(); }

SampleBatch ClickSource::batch(std::span<const std::int64_t> samples,
                               std::int64_t /*epoch*/) const {
  const auto rows = static_cast<std::int64_t>(samples.size());
  const auto numbers = torch::empty({rows, clicks_->num_numeric()}, torch::kFloat32);
  const auto fields = int64_rows(samples.size(), clicks_->num_fields());
  const auto labels = torch::empty({rows}, torch::kFloat32);
  auto* number = numbers.data_ptr<float>();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const ClickRow row = clicks_->row(samples[i]);
    labels.data_ptr<float>()[i] = row.label;
    number = std::copy(row.numeric.begin(), row.numeric.end(), number);
    std::copy(row.fields.begin(), row.fields.end(), row_of(fields, i).begin());
  }
  return {{numbers, fields}, {labels}};
}

}  // namespace pipewright
