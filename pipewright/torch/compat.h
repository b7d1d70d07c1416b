#pragma once

#include <ATen/core/Generator.h>
#include <c10/util/Exception.h>
#include <c10/util/Optional.h>
#include <torch/library.h>
#include <torch/version.h>

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

}  // namespace pipewright::compat
