#pragma once

#include <algorithm>
#include <memory>

#include "pipewright/torch/compat.h"
#include "pipewright/torch/stream.h"

namespace pipewright {

/// A point in time: of the GPU's own clock, when the stream gets there, or else of this thread's.
class Moment {
 public:
  explicit Moment(const DeviceStream& stream) {
    if (!stream.on_gpu()) {
      time_ = std::chrono::steady_clock::now();
      return;
    }
    event_ = std::make_unique<c10::Event>(stream.device().type(), c10::EventFlag::BACKEND_DEFAULT);
    event_->record(stream.stream());
  }

  /// A GPU must have got to both.
  double seconds_until(const Moment& later) const {
    if (event_) return compat::seconds_between(*event_, *later.event_);
    return std::chrono::duration<double>(later.time_ - time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
  std::unique_ptr<c10::Event> event_;
};

/// How long a measurement waits for a GPU before it gives up.
inline constexpr std::chrono::minutes kGpuDeadline{5};

/// The middle one; of an even number the later of the two.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace pipewright
