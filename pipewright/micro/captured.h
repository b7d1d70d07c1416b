#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

namespace pipewright {

// Optional, a pair of files: cuda.cpp where LibTorch has CUDA, else no_cuda.cpp.

/// Work on a GPU, recorded once as a CUDA graph and launched as a whole from then on.
class CapturedWork {
 public:
  /// Runs `work` a few times, on a stream of its own, and records it. Other streams that it uses
  /// wait for the current one first, and the current one for them at the end. Tensors it makes stay
  /// where they are and are written again by every replay. Throws InvalidArgument where there is no
  /// CUDA, `work` draws at random, or does something that cannot be recorded (a wait for the GPU).
  CapturedWork(torch::Device device, const std::function<void()>& work);
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  /// In the calling thread's current stream.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pipewright
