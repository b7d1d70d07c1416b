#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "pipewright/torch/stream.h"
#include "pipewright/transport/transport.h"

namespace pipewright {

/// Brings messages to the device of their receiver. Copies run on streams of their own, beside the
/// stages' kernels; who reads them waits by events. Any thread may call at any time.
class DeviceCopy {
 public:
  /// On the sender's thread: starts what must be copied, and notes what the receiver must wait for.
  void depart(Message* message, torch::Device to);

  /// On the receiver's thread: makes its current stream wait for the tensors; the CPU has none, and
  /// the thread itself waits. False where that wait was given up or came to its deadline.
  bool arrive(Message* message, torch::Device at, std::chrono::duration<double> deadline,
              const std::function<bool()>& given_up);

 private:
  c10::Stream copy_stream(torch::Device device);
  torch::Tensor copied(const torch::Tensor& tensor, torch::Device to);

  std::mutex mutex_;
  std::map<std::pair<int, int>, DeviceStream> streams_;  // by device type and index
};

}  // namespace pipewright
