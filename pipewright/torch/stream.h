#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <optional>

namespace pipewright {

/// The stream of one rank on one device: on a GPU one of its own, on the CPU none, and then
/// everything here does nothing.
class DeviceStream {
 public:
  explicit DeviceStream(torch::Device device);

  torch::Device device() const { return device_; }
  bool on_gpu() const { return stream_.has_value(); }
  c10::Stream stream() const { return *stream_; }

  /// What is launched from now on waits for what is in the calling thread's current stream.
  void wait_for_current() const;

  /// Returns when everything launched so far has run. Throws TransportError at the deadline.
  void synchronize(std::chrono::duration<double> deadline) const;

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
};

/// While it lives, this thread launches on the stream (and its device).
class UseStream {
 public:
  explicit UseStream(const DeviceStream& stream) {
    if (stream.on_gpu()) guard_.reset_stream(stream.stream());
  }

 private:
  c10::OptionalStreamGuard guard_;
};

/// The stream that this thread launches on.
c10::Stream current_stream(torch::Device device);

/// Looks until the event has happened. False where the deadline came first, or `given_up` said so.
bool wait_on_host(const c10::Event& event, std::chrono::duration<double> deadline,
                  const std::function<bool()>& given_up);

}  // namespace pipewright
