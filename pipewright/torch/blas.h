#pragma once

#include <string>
#include <string_view>

namespace pipewright {

/// What OPENBLAS_CORETYPE should be where OpenBLAS chose the kernels of `core`: empty where those
/// are as good as any. OpenBLAS 0.3.21, which Debian's LibTorch uses, takes an Intel CPU that is
/// newer than itself for a Prescott of 2004: its products then take four times as long.
std::string better_blas_core(std::string_view core, bool avx512, bool avx2);

/// Starts this program anew with OPENBLAS_CORETYPE set where that makes it faster (OpenBLAS reads
/// it before main()); else returns at once. Nothing where the variable is set already, or where
/// LibTorch's BLAS is another one. For the program to call, first in main.
void use_fast_blas(char* const* argv);

}  // namespace pipewright
