#include <fmt/format.h>

#include "pipewright/base/error.h"
#include "pipewright/micro/captured.h"

namespace pipewright {

struct CapturedWork::Impl {};

CapturedWork::CapturedWork(torch::Device device, const std::function<void()>& /*work*/) {
  throw InvalidArgument(
      "auto_micro_batch",
      fmt::format("cannot capture the step: it is on {}; captured graphs are CUDA's, "
                  "and this LibTorch has none",
                  device.str()));
}

CapturedWork::~CapturedWork() = default;
void CapturedWork::replay() {}

}  // namespace pipewright
