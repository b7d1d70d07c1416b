#include "pipewright/exec/step_clock.h"

#include "pipewright/torch/compat.h"

namespace pipewright {

using Clock = std::chrono::steady_clock;

double StepClock::now() const {
  return std::chrono::duration<double>(Clock::now() - origin_).count();
}

void StepClock::start(Clock::time_point origin,
                      const std::vector<std::unique_ptr<DeviceStream>>& streams) {
  origin_ = origin;
  num_pairs_ = 0;
  measured_.clear();
  origins_.clear();
  for (const auto& stream : streams) {
    if (!stream->on_gpu()) continue;
    origins_.push_back(
        {stream->device(), c10::Event(stream->device().type(), c10::EventFlag::BACKEND_DEFAULT)});
    origins_.back().event.record(stream->stream());  // the stream is empty: it happens now
    origins_.back().seconds = now();
  }
}

void StepClock::begin(StageRunner& stage) {
  const DeviceStream& stream = *stage.place().stream;
  if (!stream.on_gpu()) {
    began_ = now();
    return;
  }
  if (num_pairs_ == pairs_.size()) pairs_.emplace_back(stream.device().type());
  Pair& pair = pairs_[num_pairs_++];
  pair.begin.record(stream.stream());
  stage.set_begin(&pair.begin);  // again, when its input is there
}

void StepClock::end(StageRunner& stage, Span span, double waited) {
  const DeviceStream& stream = *stage.place().stream;
  if (!stream.on_gpu()) {
    span.start = began_ + waited;
    span.end = now();
    measured_.push_back({span});
    return;
  }
  stage.set_begin(nullptr);
  Pair& pair = pairs_[num_pairs_ - 1];
  pair.end.record(stream.stream());
  measured_.push_back({span, &pair, stream.device()});
}

std::vector<Span> StepClock::spans() {
  std::vector<Span> result;
  result.reserve(measured_.size());
  for (const Measured& one : measured_) {
    Span span = one.span;
    for (const Origin& origin : origins_) {
      if (one.events == nullptr || origin.device != one.device) continue;
      span.start = origin.seconds + compat::seconds_between(origin.event, one.events->begin);
      span.end = origin.seconds + compat::seconds_between(origin.event, one.events->end);
    }
    result.push_back(span);
  }
  return result;
}

}  // namespace pipewright
