#pragma once

#include <cstdint>

namespace pipewright::kernels {

// The loops of a transformer block between its matrix products, on a CPU. LibTorch has each as an
// operation, or several, of its own; called one after the other for small tensors, those take
// longer to get started than to compute. Matrices lie row by row without gaps. Everything is of
// float or of double; a caller shares rows, or columns, among threads as it likes: the bits do not
// depend on that.

/// Rows [first, last) of matrices with so many columns.
struct Rows {
  std::int64_t first = 0, last = 0, columns = 0;
};

/// Columns [first, last) of matrices of so many rows with `width` columns in all.
struct Columns {
  std::int64_t first = 0, last = 0, width = 0, rows = 0;
};

/// A layer norm, and of each row its mean and one over its deviation.
template <typename T>
struct Norm {
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* mean = nullptr;
  T* rstd = nullptr;
  double epsilon = 0;
};

enum class Gelu { kExact, kTanh };

void layer_norm(Rows rows, const Norm<float>& norm, const float* x, float* out);
void layer_norm(Rows rows, const Norm<double>& norm, const double* x, double* out);

/// in = the gradient of the norm's input x for that of its output, `out`, plus `more`.
void layer_norm_input(Rows rows, const Norm<float>& norm, const float* x, const float* out,
                      const float* more, float* in);
void layer_norm_input(Rows rows, const Norm<double>& norm, const double* x, const double* out,
                      const double* more, double* in);

/// The gradients of the norm's weight and bias.
void layer_norm_weights(Columns columns, const Norm<float>& norm, const float* x, const float* out,
                        float* weight, float* bias);
void layer_norm_weights(Columns columns, const Norm<double>& norm, const double* x,
                        const double* out, double* weight, double* bias);

void column_sums(Columns columns, const float* x, float* sums);
void column_sums(Columns columns, const double* x, double* sums);

/// x += bias, in each row.
void add_bias(Rows rows, const float* bias, float* x);
void add_bias(Rows rows, const double* bias, double* x);

/// x += bias, in each row, + more.
void add_bias_and(Rows rows, const float* bias, const float* more, float* x);
void add_bias_and(Rows rows, const double* bias, const double* more, double* x);

/// x += bias, in each row; out = GELU of that.
void gelu(Rows rows, Gelu kind, const float* bias, float* x, float* out);
void gelu(Rows rows, Gelu kind, const double* bias, double* x, double* out);

/// Makes the gradient of GELU's output that of its input x.
void gelu_backward(Rows rows, Gelu kind, const float* x, float* gradient);
void gelu_backward(Rows rows, Gelu kind, const double* x, double* gradient);

/// Some rows of causal attention's matrix of scores: those of the queries [first, last), with the
/// keys [0, last).
struct Queries {
  std::int64_t first = 0, last = 0;
};

/// Scores to weights: what a query may not see becomes 0; `sums`, by query, the logarithm of a
/// row's sum of exponentials.
void causal_softmax(Queries queries, float* scores, float* sums);
void causal_softmax(Queries queries, double* scores, double* sums);

/// The same with the sums known: scores to weights, and the gradients of weights to those of
/// scores. `dots`, by query: its gradient times what it got.
void causal_softmax_backward(Queries queries, const float* sums, const float* dots, float* scores,
                             float* gradients);
void causal_softmax_backward(Queries queries, const double* sums, const double* dots,
                             double* scores, double* gradients);

/// The product of two vectors.
float dot(std::int64_t count, const float* a, const float* b);
double dot(std::int64_t count, const double* a, const double* b);

}  // namespace pipewright::kernels
