#include "pipewright/torch/gemm.h"

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <algorithm>
#include <limits>

namespace pipewright {
namespace {

/// BLAS's own, which knows matrices column by column: by reference, as Fortran has it.
template <typename T>
using Blas = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n,
                      const int* k, const T* alpha, const T* a, const int* lda, const T* b,
                      const int* ldb, const T* beta, T* c, const int* ldc);

/// LibTorch's libraries have it among their symbols, or those they are linked to.
template <typename T>
Blas<T> find_blas(const char* name) {
  return reinterpret_cast<Blas<T>>(::dlsym(RTLD_DEFAULT, name));
}

template <typename T>
bool fits(const ProductSizes& s, const Matrix<const T>& a, const Matrix<const T>& b,
          const Matrix<T>& c) {
  return std::max({s.m, s.n, s.k, a.stride, b.stride, c.stride}) <= std::numeric_limits<int>::max();
}

/// Row by row, c is column by column its transpose, b^T a^T.
template <typename T>
void call(Blas<T> blas, const ProductSizes& s, T alpha, const Matrix<const T>& a,
          const Matrix<const T>& b, T beta, const Matrix<T>& c) {
  const int m = static_cast<int>(s.n), n = static_cast<int>(s.m), k = static_cast<int>(s.k);
  const int lda = static_cast<int>(b.stride), ldb = static_cast<int>(a.stride);
  const int ldc = static_cast<int>(c.stride);
  blas(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &m, &n, &k, &alpha, b.data, &lda, a.data,
       &ldb, &beta, c.data, &ldc);
}

template <typename T>
at::Tensor tensor_of(const Matrix<const T>& matrix, std::int64_t rows, std::int64_t columns) {
  auto* data = const_cast<T*>(matrix.data);  // from_blob() has no other
  const auto type = c10::CppTypeToScalarType<T>::value;
  if (matrix.transposed) return at::from_blob(data, {rows, columns}, {1, matrix.stride}, type);
  return at::from_blob(data, {rows, columns}, {matrix.stride, 1}, type);
}

/// By the BLAS if it is there.
template <typename T>
void multiply(Blas<T> blas, const ProductSizes& s, T alpha, const Matrix<const T>& a,
              const Matrix<const T>& b, T beta, const Matrix<T>& c) {
  if (blas == nullptr || !fits(s, a, b, c)) return gemm_by_libtorch<T>(s, alpha, a, b, beta, c);
  call(blas, s, alpha, a, b, beta, c);
}

}  // namespace

template <typename T>
void gemm_by_libtorch(ProductSizes s, T alpha, Matrix<const T> a, Matrix<const T> b, T beta,
                      Matrix<T> c) {
  tensor_of<T>({c.data, c.stride}, s.m, s.n)
      .addmm_(tensor_of<T>(a, s.m, s.k), tensor_of<T>(b, s.k, s.n), beta, alpha);
}
template void gemm_by_libtorch(ProductSizes, float, Matrix<const float>, Matrix<const float>, float,
                               Matrix<float>);
template void gemm_by_libtorch(ProductSizes, double, Matrix<const double>, Matrix<const double>,
                               double, Matrix<double>);

void gemm(ProductSizes sizes, float alpha, Matrix<const float> a, Matrix<const float> b, float beta,
          Matrix<float> c) {
  static const auto blas = find_blas<float>("sgemm_");
  multiply(blas, sizes, alpha, a, b, beta, c);
}
void gemm(ProductSizes sizes, double alpha, Matrix<const double> a, Matrix<const double> b,
          double beta, Matrix<double> c) {
  static const auto blas = find_blas<double>("dgemm_");
  multiply(blas, sizes, alpha, a, b, beta, c);
}

}  // namespace pipewright
