#pragma once

#include <cstdint>

namespace pipewright {

/// A matrix in memory of somebody else's, row by row, `stride` values from one row to the next.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;  // read as its transpose

  Matrix<const T> t() const { return {data, stride, !transposed}; }
};

/// m, n, k: what is made is m by n, of products along k.
struct ProductSizes {
  std::int64_t m = 0, n = 0, k = 0;
};

/// c = alpha a b + beta c, by the matrix product of the BLAS that LibTorch itself uses, without
/// what LibTorch does before it calls that: microseconds, which small products do not take. c is
/// not transposed; with beta = 0 nothing of it is read.
void gemm(ProductSizes sizes, float alpha, Matrix<const float> a, Matrix<const float> b, float beta,
          Matrix<float> c);
void gemm(ProductSizes sizes, double alpha, Matrix<const double> a, Matrix<const double> b,
          double beta, Matrix<double> c);

/// The same through LibTorch, of float or double: what gemm() does where that BLAS cannot be found.
template <typename T>
void gemm_by_libtorch(ProductSizes sizes, T alpha, Matrix<const T> a, Matrix<const T> b, T beta,
                      Matrix<T> c);

}  // namespace pipewright
