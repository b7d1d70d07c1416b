#include "pipewright/nn/autocast.h"

#include <cstdlib>

#include "pipewright/torch/compat.h"

#if TORCH_VERSION_MAJOR < 2
// LibTorch 1.13 has no rule for these norms on the CPU, and their kernels refuse a 16-bit input
// beside 32-bit weights. They get the rule that they have on GPUs and in 2.x: 32 bits.
namespace {

using OptionalTensor = pipewright::compat::Optional<at::Tensor>;
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

at::Tensor in_float(const at::Tensor& input) {
  return at::autocast::cached_cast(at::kFloat, input, c10::DeviceType::CPU);
}

at::Tensor layer_norm(const at::Tensor& input, at::IntArrayRef shape, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, bool cudnn_enable) {
  const NoAutocast guard(c10::DispatchKey::AutocastCPU);
  return at::layer_norm(in_float(input), shape, weight, bias, eps, cudnn_enable);
}

at::Tensor group_norm(const at::Tensor& input, std::int64_t groups, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, bool cudnn_enabled) {
  const NoAutocast guard(c10::DispatchKey::AutocastCPU);
  return at::group_norm(in_float(input), groups, weight, bias, eps, cudnn_enabled);
}

TORCH_LIBRARY_IMPL(aten, AutocastCPU, library) {
  library.impl("layer_norm", TORCH_FN(layer_norm));
  library.impl("group_norm", TORCH_FN(group_norm));
}

/// The oneDNN 2.6 that Debian's LibTorch 1.13 uses fails on CPUs with tile registers (AMX): its
/// 16-bit products use tiles that are not set up, and the process is killed (SIGILL). It must do
/// without them, and reads what it may use when it is first called. What the user says goes first.
[[maybe_unused]] const bool kWithoutTiles = [] {
  if (std::getenv("DNNL_MAX_CPU_ISA") != nullptr) return false;
  return ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0) == 0;
}();

}  // namespace
#endif

namespace pipewright {

AutocastScope::AutocastScope(torch::Device device, Precision precision)
    : type_(device.type()),
      was_enabled_(compat::autocast_enabled(type_)),
      cache_was_enabled_(at::autocast::is_autocast_cache_enabled()),
      was_dtype_(compat::autocast_dtype(type_)) {
  const auto dtype = precision == Precision::kFp16 ? at::kHalf : at::kBFloat16;
  compat::set_autocast(type_, precision != Precision::kFull, dtype);
  at::autocast::set_autocast_cache_enabled(false);
}

AutocastScope::~AutocastScope() {
  compat::set_autocast(type_, was_enabled_, was_dtype_);
  at::autocast::set_autocast_cache_enabled(cache_was_enabled_);
}

}  // namespace pipewright
