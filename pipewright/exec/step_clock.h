#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include "pipewright/exec/stage_runner.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// Writes down when a rank's instructions ran: by the host's clock on the CPU, by events in the
/// rank's stream on a GPU, where the host is long gone when a kernel runs.
class StepClock {
 public:
  void start(std::chrono::steady_clock::time_point origin,
             const std::vector<std::unique_ptr<DeviceStream>>& streams);

  void begin(StageRunner& stage);
  /// `waited`: of the time since begin(), what was waiting for others.
  void end(StageRunner& stage, Span span, double waited);

  /// All spans; what was launched must have run.
  std::vector<Span> spans();

 private:
  struct Pair {
    explicit Pair(c10::DeviceType type)
        : begin(type, c10::EventFlag::BACKEND_DEFAULT),
          end(type, c10::EventFlag::BACKEND_DEFAULT) {}
    c10::Event begin;
    c10::Event end;
  };
  /// When a device's events begin to count.
  struct Origin {
    torch::Device device;
    c10::Event event;
    double seconds = 0;  // on the host's clock
  };
  struct Measured {
    Span span;
    const Pair* events = nullptr;  // null: on the CPU
    torch::Device device = torch::kCPU;
  };

  double now() const;

  std::chrono::steady_clock::time_point origin_;
  double began_ = 0;
  std::deque<Origin> origins_;
  std::deque<Pair> pairs_;  // used again and again
  std::size_t num_pairs_ = 0;
  std::vector<Measured> measured_;
};

}  // namespace pipewright
