#include "benchmarks/common/arithmetic.h"

namespace pipewright::bench {
namespace {

using Vector [[gnu::vector_size(64)]] = float;

volatile float sink;

}  // namespace

#ifdef __x86_64__
[[gnu::target_clones("avx512f", "fma", "default")]]
#endif
void arithmetic_in_registers(std::int64_t rounds) {
  Vector a{1}, b{2}, c{3}, d{4}, e{5}, f{6};
  for (std::int64_t i = 0; i < rounds; ++i) {
    a = a * 0.999F + 0.001F;
    b = b * 0.999F + 0.001F;
    c = c * 0.999F + 0.001F;
    d = d * 0.999F + 0.001F;
    e = e * 0.999F + 0.001F;
    f = f * 0.999F + 0.001F;
  }
  sink = (a + b + c + d + e + f)[0];
}

}  // namespace pipewright::bench
