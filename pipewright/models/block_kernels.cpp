#include "pipewright/models/block_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

// Each loop is written once, as a template that is put in line; what is called is compiled for
// several generations of CPUs, of which the loader takes the best.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PIPEWRIGHT_FOR_CPUS [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define PIPEWRIGHT_FOR_CPUS
#endif
#define PIPEWRIGHT_INLINE [[gnu::always_inline]] inline

namespace pipewright::kernels {
namespace {

constexpr std::int64_t kLanes = 16;  // partial sums: a vector of the widest registers

/// By a polynomial, to about a unit in the last place: a loop over it becomes vector instructions.
PIPEWRIGHT_INLINE float exponential(float x) {
  constexpr float kMagic = 12582912;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  constexpr float kHigh = 0.693359375F, kLow = -2.12194440e-4F;  // ln 2 in two parts
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * std::numbers::log2e_v<float> + kMagic;
  const float n = shifted - kMagic;
  const float r = (x - n * kHigh) - n * kLow;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1;
  const auto power = std::bit_cast<std::uint32_t>(shifted) << 23U;  // n, in the exponent's place
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + power);
}
PIPEWRIGHT_INLINE double exponential(double x) { return std::exp(x); }

/// What GELU multiplies x by, and its derivative.
template <typename T>
struct Gate {
  T value, slope;
};

/// The normal distribution. Abramowitz and Stegun, 7.1.26: to 1e-7.
PIPEWRIGHT_INLINE Gate<float> normal(float x) {
  const float away = std::abs(x) * static_cast<float>(std::numbers::sqrt2 / 2);
  const float t = 1 / (1 + 0.3275911F * away);
  const float power = exponential(-away * away);
  const float tail =
      0.5F * power * t *
      (0.254829592F +
       t * (-0.284496736F + t * (1.421413741F + t * (-1.453152027F + t * 1.061405429F))));
  constexpr auto kDensity = static_cast<float>(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);
  return {x < 0 ? tail : 1 - tail, kDensity * power};
}
PIPEWRIGHT_INLINE Gate<double> normal(double x) {
  return {std::erfc(-x * std::numbers::sqrt2 / 2) / 2,
          std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2 * std::exp(-x * x / 2)};
}

/// (1 + tanh(a (x + b x^3))) / 2, which is a logistic function.
template <typename T>
PIPEWRIGHT_INLINE Gate<T> tanh_gate(T x) {
  constexpr T kB = 0.044715;
  constexpr T kTwiceA = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const T value = 1 / (1 + exponential(-kTwiceA * (x + kB * x * x * x)));
  return {value, value * (1 - value) * kTwiceA * (1 + 3 * kB * x * x)};
}

/// The sum of value(i), i < count, in an order that vector instructions have too.
template <typename T, typename Value>
PIPEWRIGHT_INLINE T sum(std::int64_t count, const Value& value) {
  std::array<T, kLanes> lanes{};
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += value(i + lane);
  }
  for (std::int64_t i = whole; i < count; ++i) lanes[i - whole] += value(i);
  T total = 0;
  for (const T lane : lanes) total += lane;
  return total;
}

template <typename T>
PIPEWRIGHT_INLINE T most_of(std::int64_t count, const T* x) {
  std::array<T, kLanes> lanes{};
  lanes.fill(x[0]);
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  }
  for (std::int64_t i = whole; i < count; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  T most = lanes[0];
  for (const T lane : lanes) most = lane > most ? lane : most;
  return most;
}

template <typename T>
PIPEWRIGHT_INLINE void norm_rows(Rows rows, const Norm<T>& norm, const T* x, T* out) {
  const std::int64_t c = rows.columns;
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    const T* in = x + row * c;
    T* to = out + row * c;
    const T mean = sum<T>(c, [&](std::int64_t i) { return in[i]; }) / static_cast<T>(c);
    const T square = sum<T>(c, [&](std::int64_t i) { return (in[i] - mean) * (in[i] - mean); }) /
                     static_cast<T>(c);
    const T rstd = 1 / std::sqrt(square + static_cast<T>(norm.epsilon));
    for (std::int64_t i = 0; i < c; ++i)
      to[i] = (in[i] - mean) * rstd * norm.weight[i] + norm.bias[i];
    norm.mean[row] = mean;
    norm.rstd[row] = rstd;
  }
}

template <typename T>
PIPEWRIGHT_INLINE void norm_input_rows(Rows rows, const Norm<T>& norm, const T* x, const T* out,
                                       const T* more, T* in) {
  const std::int64_t c = rows.columns;
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    const T* value = x + row * c;
    const T* gradient = out + row * c;
    const T* other = more + row * c;
    T* to = in + row * c;
    const T mean = norm.mean[row], rstd = norm.rstd[row];
    const auto scaled = [&](std::int64_t i) { return gradient[i] * norm.weight[i]; };
    const T part = sum<T>(c, scaled) / static_cast<T>(c);
    const T along = sum<T>(c, [&](std::int64_t i) { return scaled(i) * (value[i] - mean); }) *
                    rstd * rstd / static_cast<T>(c);
    for (std::int64_t i = 0; i < c; ++i)
      to[i] = rstd * (scaled(i) - part - (value[i] - mean) * along) + other[i];
  }
}

template <typename T>
PIPEWRIGHT_INLINE void norm_weight_columns(Columns columns, const Norm<T>& norm, const T* x,
                                           const T* out, T* weight, T* bias) {
  for (std::int64_t i = columns.first; i < columns.last; ++i) weight[i] = bias[i] = 0;
  for (std::int64_t row = 0; row < columns.rows; ++row) {
    const T* value = x + row * columns.width;
    const T* gradient = out + row * columns.width;
    const T mean = norm.mean[row], rstd = norm.rstd[row];
    for (std::int64_t i = columns.first; i < columns.last; ++i) {
      weight[i] += gradient[i] * ((value[i] - mean) * rstd);
      bias[i] += gradient[i];
    }
  }
}

template <typename T>
PIPEWRIGHT_INLINE void sum_columns(Columns columns, const T* x, T* sums) {
  for (std::int64_t i = columns.first; i < columns.last; ++i) sums[i] = 0;
  for (std::int64_t row = 0; row < columns.rows; ++row) {
    const T* from = x + row * columns.width;
    for (std::int64_t i = columns.first; i < columns.last; ++i) sums[i] += from[i];
  }
}

template <typename T>
PIPEWRIGHT_INLINE void bias_rows(Rows rows, const T* bias, T* x) {
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    T* to = x + row * rows.columns;
    for (std::int64_t i = 0; i < rows.columns; ++i) to[i] += bias[i];
  }
}

template <typename T>
PIPEWRIGHT_INLINE void bias_and_rows(Rows rows, const T* bias, const T* more, T* x) {
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    T* to = x + row * rows.columns;
    const T* other = more + row * rows.columns;
    for (std::int64_t i = 0; i < rows.columns; ++i) to[i] = to[i] + bias[i] + other[i];
  }
}

template <typename T, typename GateOf>
PIPEWRIGHT_INLINE void gelu_rows(Rows rows, const GateOf& gate, const T* bias, T* x, T* out) {
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    T* in = x + row * rows.columns;
    T* to = out + row * rows.columns;
    for (std::int64_t i = 0; i < rows.columns; ++i) {
      const T value = in[i] + bias[i];
      in[i] = value;
      to[i] = value * gate(value).value;
    }
  }
}

template <typename T, typename GateOf>
PIPEWRIGHT_INLINE void gelu_backward_rows(Rows rows, const GateOf& gate, const T* x, T* gradient) {
  for (std::int64_t i = rows.first * rows.columns; i < rows.last * rows.columns; ++i) {
    const Gate<T> at = gate(x[i]);
    gradient[i] *= at.value + x[i] * at.slope;
  }
}

/// Loops go over all keys, also those that a query does not see: whole vectors.
template <typename T>
PIPEWRIGHT_INLINE void softmax_rows(Queries queries, T* scores, T* sums) {
  const std::int64_t keys = queries.last;
  for (std::int64_t query = queries.first; query < queries.last; ++query, scores += keys) {
    std::fill(scores + query + 1, scores + keys, std::numeric_limits<T>::lowest());
    const T most = most_of(keys, scores);
    for (std::int64_t key = 0; key < keys; ++key) scores[key] = exponential(scores[key] - most);
    std::fill(scores + query + 1, scores + keys, T(0));
    const T total = sum<T>(keys, [&](std::int64_t key) { return scores[key]; });
    const T share = 1 / total;
    for (std::int64_t key = 0; key < keys; ++key) scores[key] *= share;
    sums[query] = most + std::log(total);
  }
}

template <typename T>
PIPEWRIGHT_INLINE void softmax_backward_rows(Queries queries, const T* sums, const T* dots,
                                             T* scores, T* gradients) {
  const std::int64_t keys = queries.last;
  for (std::int64_t query = queries.first; query < queries.last;
       ++query, scores += keys, gradients += keys) {
    const T total = sums[query], along = dots[query];
    for (std::int64_t key = 0; key < keys; ++key) {
      const T weight = exponential(scores[key] - total);
      scores[key] = weight;
      gradients[key] = weight * (gradients[key] - along);
    }
    std::fill(scores + query + 1, scores + keys, T(0));
    std::fill(gradients + query + 1, gradients + keys, T(0));
  }
}

template <typename T>
PIPEWRIGHT_INLINE void gelu_of(Rows rows, Gelu kind, const T* bias, T* x, T* out) {
  if (kind == Gelu::kExact)
    gelu_rows(
        rows, [](T value) { return normal(value); }, bias, x, out);
  else
    gelu_rows(
        rows, [](T value) { return tanh_gate(value); }, bias, x, out);
}

template <typename T>
PIPEWRIGHT_INLINE void gelu_backward_of(Rows rows, Gelu kind, const T* x, T* gradient) {
  if (kind == Gelu::kExact)
    gelu_backward_rows(
        rows, [](T value) { return normal(value); }, x, gradient);
  else
    gelu_backward_rows(
        rows, [](T value) { return tanh_gate(value); }, x, gradient);
}

}  // namespace

PIPEWRIGHT_FOR_CPUS
void layer_norm(Rows rows, const Norm<float>& norm, const float* x, float* out) {
  norm_rows(rows, norm, x, out);
}
void layer_norm(Rows rows, const Norm<double>& norm, const double* x, double* out) {
  norm_rows(rows, norm, x, out);
}

PIPEWRIGHT_FOR_CPUS
void layer_norm_input(Rows rows, const Norm<float>& norm, const float* x, const float* out,
                      const float* more, float* in) {
  norm_input_rows(rows, norm, x, out, more, in);
}
void layer_norm_input(Rows rows, const Norm<double>& norm, const double* x, const double* out,
                      const double* more, double* in) {
  norm_input_rows(rows, norm, x, out, more, in);
}

PIPEWRIGHT_FOR_CPUS
void layer_norm_weights(Columns columns, const Norm<float>& norm, const float* x, const float* out,
                        float* weight, float* bias) {
  norm_weight_columns(columns, norm, x, out, weight, bias);
}
void layer_norm_weights(Columns columns, const Norm<double>& norm, const double* x,
                        const double* out, double* weight, double* bias) {
  norm_weight_columns(columns, norm, x, out, weight, bias);
}

PIPEWRIGHT_FOR_CPUS
void column_sums(Columns columns, const float* x, float* sums) { sum_columns(columns, x, sums); }
void column_sums(Columns columns, const double* x, double* sums) { sum_columns(columns, x, sums); }

PIPEWRIGHT_FOR_CPUS
void add_bias(Rows rows, const float* bias, float* x) { bias_rows(rows, bias, x); }
void add_bias(Rows rows, const double* bias, double* x) { bias_rows(rows, bias, x); }

PIPEWRIGHT_FOR_CPUS
void add_bias_and(Rows rows, const float* bias, const float* more, float* x) {
  bias_and_rows(rows, bias, more, x);
}
void add_bias_and(Rows rows, const double* bias, const double* more, double* x) {
  bias_and_rows(rows, bias, more, x);
}

PIPEWRIGHT_FOR_CPUS
void gelu(Rows rows, Gelu kind, const float* bias, float* x, float* out) {
  gelu_of(rows, kind, bias, x, out);
}
void gelu(Rows rows, Gelu kind, const double* bias, double* x, double* out) {
  gelu_of(rows, kind, bias, x, out);
}

PIPEWRIGHT_FOR_CPUS
void gelu_backward(Rows rows, Gelu kind, const float* x, float* gradient) {
  gelu_backward_of(rows, kind, x, gradient);
}
void gelu_backward(Rows rows, Gelu kind, const double* x, double* gradient) {
  gelu_backward_of(rows, kind, x, gradient);
}

PIPEWRIGHT_FOR_CPUS
void causal_softmax(Queries queries, float* scores, float* sums) {
  softmax_rows(queries, scores, sums);
}
void causal_softmax(Queries queries, double* scores, double* sums) {
  softmax_rows(queries, scores, sums);
}

PIPEWRIGHT_FOR_CPUS
void causal_softmax_backward(Queries queries, const float* sums, const float* dots, float* scores,
                             float* gradients) {
  softmax_backward_rows(queries, sums, dots, scores, gradients);
}
void causal_softmax_backward(Queries queries, const double* sums, const double* dots,
                             double* scores, double* gradients) {
  softmax_backward_rows(queries, sums, dots, scores, gradients);
}

PIPEWRIGHT_FOR_CPUS
float dot(std::int64_t count, const float* a, const float* b) {
  return sum<float>(count, [&](std::int64_t i) { return a[i] * b[i]; });
}
double dot(std::int64_t count, const double* a, const double* b) {
  return sum<double>(count, [&](std::int64_t i) { return a[i] * b[i]; });
}

}  // namespace pipewright::kernels
