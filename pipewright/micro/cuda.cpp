#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/micro/captured.h"

namespace pipewright {
namespace {

constexpr int kWarmUps = 3;  // libraries choose algorithms and take their workspaces

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument("auto_micro_batch", fmt::format("cannot capture the step: {}", why));
}

}  // namespace

struct CapturedWork::Impl {
  at::cuda::CUDAGraph graph;
};

CapturedWork::CapturedWork(torch::Device device, const std::function<void()>& work)
    : impl_(std::make_unique<Impl>()) {
  if (!device.is_cuda())
    refuse(fmt::format("it is on {}; captured graphs are CUDA's", device.str()));
  const c10::cuda::CUDAGuard on_device(device);
  const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  at::cuda::getCurrentCUDAStream(device.index()).synchronize();
  const c10::cuda::CUDAStreamGuard guard(stream);
  const at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device.index());
  const torch::Tensor before = generator.get_state();
  for (int i = 0; i < kWarmUps; ++i) work();
  stream.synchronize();
  if (!torch::equal(before, generator.get_state()))
    refuse("the model draws at random, which a replay would repeat; use dropout = 0, or lanes");
  try {
    impl_->graph.capture_begin();
    work();
    impl_->graph.capture_end();
  } catch (const std::exception& error) {
    const std::string words = error.what();
    refuse(fmt::format("{}; use lanes without capture", words.substr(0, words.find('\n'))));
  }
  stream.synchronize();
}

CapturedWork::~CapturedWork() = default;

void CapturedWork::replay() { impl_->graph.replay(); }

}  // namespace pipewright
