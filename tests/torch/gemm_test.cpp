#include "pipewright/torch/gemm.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <type_traits>

namespace pipewright {
namespace {

using torch::Tensor;

TEST(Gemm, HasABlas) {  // else it is right, and slow
  EXPECT_NE(::dlsym(RTLD_DEFAULT, "sgemm_"), nullptr);
  EXPECT_NE(::dlsym(RTLD_DEFAULT, "dgemm_"), nullptr);
}

template <typename T>
Matrix<T> matrix_of(const Tensor& tensor, bool transposed = false) {
  return {tensor.data_ptr<std::remove_const_t<T>>(), tensor.stride(0), transposed};
}

/// Parts of wider matrices, each as it is or transposed.
template <typename T>
void compare(torch::ScalarType type, double tolerance) {
  constexpr std::int64_t kM = 5, kN = 7, kK = 3;
  torch::manual_seed(1);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const double beta : {0.0, 0.5}) {
        const Tensor a = torch::randn({ta ? kK : kM, 11}, type),
                     b = torch::randn({tb ? kN : kK, 9}, type);
        const Tensor whole = torch::full({kM, 13}, std::numeric_limits<double>::quiet_NaN(), type);
        const Tensor c = whole.slice(1, 0, kN);
        if (beta != 0) c.copy_(torch::randn({kM, kN}, type));
        const Tensor left = a.slice(1, 0, ta ? kM : kK), right = b.slice(1, 0, tb ? kK : kN);
        Tensor expected = 2 * torch::mm(ta ? left.t() : left, tb ? right.t() : right);
        if (beta != 0) expected += beta * c;
        const Tensor other = whole.clone();
        const auto of_a = matrix_of<const T>(a, ta), of_b = matrix_of<const T>(b, tb);
        gemm({kM, kN, kK}, T(2), of_a, of_b, T(beta), matrix_of<T>(whole));
        gemm_by_libtorch({kM, kN, kK}, T(2), of_a, of_b, T(beta), matrix_of<T>(other));
        EXPECT_LT((c - expected).abs().max().item<double>(), tolerance) << ta << tb << beta;
        EXPECT_LT((other.slice(1, 0, kN) - expected).abs().max().item<double>(), tolerance);
        EXPECT_TRUE(whole.slice(1, kN).isnan().all().item<bool>()) << "wrote beside it";
      }
    }
  }
}

TEST(Gemm, MultipliesPartsOfMatricesAndTheirTransposes) {
  compare<float>(torch::kFloat, 1e-5);
  compare<double>(torch::kDouble, 1e-13);
}

}  // namespace
}  // namespace pipewright
