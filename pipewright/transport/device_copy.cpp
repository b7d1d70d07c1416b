#include "pipewright/transport/device_copy.h"

#include <algorithm>

namespace pipewright {
namespace {

std::shared_ptr<c10::Event> recorded(c10::Stream stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

bool needs_copy(const torch::Tensor& tensor, torch::Device to) {
  return tensor.defined() && tensor.device() != to;
}

}  // namespace

c10::Stream DeviceCopy::copy_stream(torch::Device device) {
  const std::lock_guard lock(mutex_);
  const std::pair key(static_cast<int>(device.type()), static_cast<int>(device.index()));
  return streams_.try_emplace(key, device).first->second.stream();
}

/// The copy, running on the copy streams of the devices that have part in it. A copy between the
/// CPU and a GPU passes through pinned memory, without which nothing runs beside it.
torch::Tensor DeviceCopy::copied(const torch::Tensor& tensor, torch::Device to) {
  const torch::Device from = tensor.device();
  if (from.is_cpu()) {
    const c10::StreamGuard there(copy_stream(to));
    return tensor.pin_memory().to(to, /*non_blocking=*/true);
  }
  const c10::Stream here = copy_stream(from);
  recorded(current_stream(from))->block(here);
  tensor.record_stream(here);
  if (to.is_cpu()) {
    const c10::StreamGuard guard(here);
    auto host = torch::empty_like(tensor, tensor.options().device(to).pinned_memory(true));
    return host.copy_(tensor, /*non_blocking=*/true);
  }
  const c10::MultiStreamGuard both({here, copy_stream(to)});
  return tensor.to(to, /*non_blocking=*/true);
}

void DeviceCopy::depart(Message* message, torch::Device to) {
  for (auto& tensor : message->tensors) {
    if (tensor.defined() && !tensor.is_cpu() && tensor.device() == to) {
      message->ready = {recorded(current_stream(to))};
      break;
    }
  }
  for (auto& tensor : message->tensors) {
    if (!needs_copy(tensor, to)) continue;
    const torch::Device from = tensor.device();
    tensor = copied(tensor, to);
    message->ready.push_back(recorded(copy_stream(to.is_cpu() ? from : to)));
  }
}

bool DeviceCopy::arrive(Message* message, torch::Device at, std::chrono::duration<double> deadline,
                        const std::function<bool()>& given_up) {
  const auto waited = [&](const std::shared_ptr<c10::Event>& event) {
    if (at.is_cpu()) return wait_on_host(*event, deadline, given_up);
    event->block(current_stream(at));
    return true;
  };
  if (!std::all_of(message->ready.begin(), message->ready.end(), waited)) return false;
  message->ready.clear();
  for (const auto& tensor : message->tensors) {
    // Its memory must outlive this stream's use of it, though another stream asked for it.
    if (tensor.defined() && !tensor.is_cpu()) tensor.record_stream(current_stream(at));
  }
  return true;
}

}  // namespace pipewright
