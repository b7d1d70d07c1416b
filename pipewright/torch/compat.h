#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/Event.h>
#include <c10/util/Exception.h>
#include <c10/util/Optional.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cmath>
#include <limits>
#include <string>

/// The differences between the LibTorch versions we build on (1.13 to 2.15), and nothing else. Code
/// that needs an `#if` on the version gets a name here instead.
///
/// What needs no entry: operators are overridden through the functions of `at::cpu` and
/// `at::compositeimplicitautograd`, whose C++ signatures are deduced, so that `const Tensor& noise`
/// (1.13) against `Tensor& noise` (2.x) and the like make no difference.
namespace pipewright::compat {

/// The optional of operator signatures: LibTorch's own in 1.13, std::optional in 2.x.
template <typename T>
using Optional = c10::optional<T>;

#if TORCH_VERSION_MAJOR >= 2
using WarningHandlerGuard = c10::WarningUtils::WarningHandlerGuard;
#else
using WarningHandlerGuard = c10::Warning::WarningHandlerGuard;
#endif

/// Swallows what LibTorch warns of.
class SilentHandler final : public c10::WarningHandler {
 public:
#if TORCH_VERSION_MAJOR >= 2
  void process(const c10::Warning& /*warning*/) override {}
#else
  void process(const c10::SourceLocation& /*where*/, const std::string& /*message*/,
               const bool /*verbatim*/) override {}
#endif
};

/// While it lives, LibTorch's warnings on this thread go nowhere. For the one it writes when a
/// kernel of its own is replaced, which is what we want.
class SilentWarnings {
 private:
  SilentHandler handler_;
  WarningHandlerGuard guard_{&handler_};
};

/// Hooks that 2.x keeps beside a node's own: those of the tensor it makes.
#if TORCH_VERSION_MAJOR >= 2
inline bool has_tensor_hooks(torch::autograd::Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
         node.tensor_post_acc_grad_hooks() != nullptr;
}
#else
inline bool has_tensor_hooks(torch::autograd::Node& /*node*/) { return false; }
#endif

/// sum += a b, and a b, products of 16 bits added up in 32; false or undefined where LibTorch has
/// none.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11)
inline bool add_product_in_32_bits(at::Tensor* sum, const at::Tensor& a, const at::Tensor& b) {
  at::addmm_out(*sum, *sum, a, b, at::kFloat);
  return true;
}
inline at::Tensor product_in_32_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a, b, at::kFloat);
}
#else
inline bool add_product_in_32_bits(at::Tensor* /*sum*/, const at::Tensor& /*a*/,
                                   const at::Tensor& /*b*/) {
  return false;
}
inline at::Tensor product_in_32_bits(const at::Tensor& /*a*/, const at::Tensor& /*b*/) {
  return {};
}
#endif

#if TORCH_VERSION_MAJOR >= 2
inline bool autocast_enabled(c10::DeviceType type) {
  return at::autocast::is_autocast_enabled(type);
}
inline at::ScalarType autocast_dtype(c10::DeviceType type) {
  return at::autocast::get_autocast_dtype(type);
}
inline void set_autocast(c10::DeviceType type, bool on, at::ScalarType dtype) {
  at::autocast::set_autocast_enabled(type, on);
  at::autocast::set_autocast_dtype(type, dtype);
}
inline constexpr bool kCpuRunsHalf = true;
#else
inline bool autocast_enabled(c10::DeviceType type) {
  return type == c10::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
inline at::ScalarType autocast_dtype(c10::DeviceType type) {
  return type == c10::kCPU ? at::autocast::get_autocast_cpu_dtype()
                           : at::autocast::get_autocast_gpu_dtype();
}
inline void set_autocast(c10::DeviceType type, bool on, at::ScalarType dtype) {
  type == c10::kCPU ? at::autocast::set_cpu_enabled(on) : at::autocast::set_enabled(on);
  type == c10::kCPU ? at::autocast::set_autocast_cpu_dtype(dtype)
                    : at::autocast::set_autocast_gpu_dtype(dtype);
}
inline constexpr bool kCpuRunsHalf = false;
#endif

/// Between two events of one device that have both happened. GPUs want LibTorch 2.x.
inline double seconds_between(const c10::Event& first, const c10::Event& second) {
#if TORCH_VERSION_MAJOR >= 2
  return 1e-3 * first.elapsedTime(second);
#else
  (void)first, (void)second;
  TORCH_CHECK(false, "events have no times in LibTorch 1.x");
#endif
}

/// What attention() leaves out of its weights.
struct AttentionOptions {
  double dropout = 0;       // share of the weights
  bool causal = false;      // a query sees keys up to its own place; of as many keys as queries
  at::Tensor visible = {};  // bool, broadcast to (B, H, T, S): keys that count; undefined: all
};

/// softmax(query key^T / sqrt(C)) value of (B, H, T, C) and twice (B, H, S, C), in one kernel where
/// LibTorch has it. Every query sees a key.
inline at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionOptions& options = {}) {
#if TORCH_VERSION_MAJOR >= 2
  const auto mask =
      options.visible.defined() ? Optional<at::Tensor>(options.visible) : Optional<at::Tensor>();
  return at::scaled_dot_product_attention(query, key, value, mask, options.dropout, options.causal);
#else
  const double root = std::sqrt(static_cast<double>(query.size(-1)));
  auto scores = at::matmul(query / root, key.transpose(-1, -2));  // (B, H, T, S)
  const double never = -std::numeric_limits<double>::infinity();
  // Added, not filled in: its backward then costs nothing.
  if (options.causal) {
    scores = scores + at::full({scores.size(-2), scores.size(-1)}, never, scores.options()).triu(1);
  }
  if (options.visible.defined()) {
    const auto zeros = at::zeros(options.visible.sizes(), scores.options());
    scores = scores + zeros.masked_fill(options.visible.logical_not(), never);
  }
  const auto weights = at::softmax(scores, -1);
  return at::matmul(at::dropout(weights, options.dropout, options.dropout > 0), value);
#endif
}

/// What an optimizer finds a parameter's state by.
#if TORCH_VERSION_MAJOR >= 2
inline void* optimizer_key(const at::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }
#else
inline std::string optimizer_key(const at::Tensor& parameter) {
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
}
#endif

struct AdamNumbers {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad;
};

/// One kernel for all of them.
#if TORCH_VERSION_MAJOR >= 2
inline constexpr bool kHasFusedAdam = true;
inline void fused_adam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages,
                       at::TensorList squares, at::TensorList most_squares, at::TensorList steps,
                       const AdamNumbers& n) {
  at::_fused_adam_(parameters, gradients, averages, squares, most_squares, steps, n.lr, n.beta1,
                   n.beta2, n.weight_decay, n.eps, n.amsgrad, /*maximize=*/false);
}
#else
inline constexpr bool kHasFusedAdam = false;
inline void fused_adam(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                       at::TensorList, at::TensorList, const AdamNumbers&) {
  TORCH_CHECK(false, "LibTorch 1.x has no fused Adam");
}
#endif

}  // namespace pipewright::compat
