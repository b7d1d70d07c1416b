#include "pipewright/torch/stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <thread>

#include "pipewright/base/error.h"

namespace pipewright {

DeviceStream::DeviceStream(torch::Device device) : device_(device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device.type());
  stream_ = devices.getStreamFromGlobalPool(device);
}

void DeviceStream::wait_for_current() const {
  if (!on_gpu()) return;
  c10::Event event(device_.type());
  event.record(current_stream(device_));
  event.block(*stream_);
}

void DeviceStream::synchronize(std::chrono::duration<double> deadline) const {
  if (!on_gpu()) return;
  c10::Event event(device_.type());
  event.record(*stream_);
  if (wait_on_host(event, deadline, [] { return false; })) return;
  throw TransportError(
      "device",
      fmt::format("{} was not done within {} s; raise the deadline if a step is that slow",
                  device_.str(), deadline.count()));
}

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

bool wait_on_host(const c10::Event& event, std::chrono::duration<double> deadline,
                  const std::function<bool()>& given_up) {
  const auto start = std::chrono::steady_clock::now();
  while (!event.query()) {
    if (given_up() || std::chrono::steady_clock::now() - start > deadline) return event.query();
    std::this_thread::yield();
  }
  return true;
}

}  // namespace pipewright
