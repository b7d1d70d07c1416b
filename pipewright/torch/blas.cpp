#include "pipewright/torch/blas.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace pipewright {
namespace {

bool cpu_has_avx512() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#else
  return false;
#endif
}

bool cpu_has_avx2() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
#else
  return false;
#endif
}

/// Empty where there is no OpenBLAS.
std::string blas_core() {
  using CoreName = char* (*)();
  const auto name = reinterpret_cast<CoreName>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return name == nullptr ? "" : name();
}

}  // namespace

std::string better_blas_core(std::string_view core, bool avx512, bool avx2) {
  if (core != "Prescott") return "";
  if (avx512) return "SKYLAKEX";
  return avx2 ? "HASWELL" : "";
}

void use_fast_blas(char* const* argv) {
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  const std::string better = better_blas_core(blas_core(), cpu_has_avx512(), cpu_has_avx2());
  if (better.empty()) return;
  ::setenv("OPENBLAS_CORETYPE", better.c_str(), /*overwrite=*/1);
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(program.c_str(), argv);  // where that fails it goes on, slowly
}

}  // namespace pipewright
