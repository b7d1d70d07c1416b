#include "pipewright/cost/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

constexpr std::array kTimes = {&LayerCost::forward_seconds, &LayerCost::backward_seconds,
                               &LayerCost::backward_input_seconds,
                               &LayerCost::backward_weight_seconds};
constexpr std::array kBytes = {&LayerCost::output_bytes,        &LayerCost::saved_bytes,
                               &LayerCost::weight_half_bytes,   &LayerCost::forward_temp_bytes,
                               &LayerCost::backward_temp_bytes, &LayerCost::skip_bytes,
                               &LayerCost::idle_bytes,          &LayerCost::gone_bytes};

void check(std::span<const Profile> profiles) {
  if (profiles.empty()) throw InvalidArgument("profile", "there is none");
  for (std::size_t i = 1; i < profiles.size(); ++i) {
    const auto& before = profiles[i - 1];
    if (profiles[i].micro_batch_size <= before.micro_batch_size) {
      throw InvalidArgument("profile",
                            fmt::format("micro-batches of {} after {}; give each size once, in "
                                        "increasing order",
                                        profiles[i].micro_batch_size, before.micro_batch_size));
    }
    const bool same =
        std::equal(before.layers.begin(), before.layers.end(), profiles[i].layers.begin(),
                   profiles[i].layers.end(), [](const LayerCost& a, const LayerCost& b) {
                     return a.name == b.name && a.parameter_bytes == b.parameter_bytes;
                   });
    if (!same) throw InvalidArgument("profile", "the profiles are of different models");
  }
}

/// Two measured sizes and the line through what was measured there.
class Line {
 public:
  /// Beyond the largest size: times hardly get better, bytes stay on their line.
  enum class Beyond { kInProportion, kOnTheLine };

  Line(std::span<const Profile> profiles, double rows, Beyond beyond)
      : rows_(rows), beyond_(beyond) {
    std::size_t high = 1;
    while (high + 1 < profiles.size() && profiles[high].micro_batch_size < rows) ++high;
    high_ = profiles.size() == 1 ? profiles.data() : &profiles[high];
    low_ = profiles.size() == 1 ? nullptr : &profiles[high - 1];
  }

  /// `value` of a profile, which is never less than half as much for half the rows.
  template <typename Value>
  double at(const Value& value) const {
    const double y = value(*high_);
    const double x = high_->micro_batch_size;
    if (low_ == nullptr) return y * rows_ / x;
    const double y0 = value(*low_);
    const double x0 = low_->micro_batch_size;
    const double on_line = y0 + (y - y0) * (rows_ - x0) / (x - x0);
    if (rows_ < x0) return std::clamp(on_line, y0 * rows_ / x0, y0);
    if (rows_ > x && beyond_ == Beyond::kInProportion) return y * rows_ / x;
    return std::max(on_line, rows_ > x ? y : std::min(y, y0));
  }

 private:
  double rows_;
  Beyond beyond_;
  const Profile* low_;
  const Profile* high_;
};

}  // namespace

Profile scale_profile(std::span<const Profile> profiles, double rows, int most_rows) {
  check(profiles);
  Profile scaled = profiles[0];
  scaled.micro_batch_size = most_rows;
  const Line times(profiles, rows, Line::Beyond::kInProportion);
  const Line bytes(profiles, most_rows, Line::Beyond::kOnTheLine);
  const auto whole = [](double value) {
    return static_cast<std::int64_t>(std::ceil(value - 1e-6));
  };
  scaled.input_bytes =
      whole(bytes.at([](const Profile& p) { return static_cast<double>(p.input_bytes); }));
  for (std::size_t i = 0; i < scaled.layers.size(); ++i) {
    for (const auto member : kTimes)
      scaled.layers[i].*member = times.at([&](const Profile& p) { return p.layers[i].*member; });
    for (const auto member : kBytes) {
      scaled.layers[i].*member = whole(
          bytes.at([&](const Profile& p) { return static_cast<double>(p.layers[i].*member); }));
    }
  }
  return scaled;
}

}  // namespace pipewright
