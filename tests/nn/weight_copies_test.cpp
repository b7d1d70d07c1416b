// WeightCopies, and accumulating_linear() with them.

#include "pipewright/nn/weight_copies.h"

#include <gtest/gtest.h>

#include "pipewright/nn/autocast.h"
#include "pipewright/nn/leaf_gradient.h"
#include "pipewright/nn/linear.h"

namespace pipewright {
namespace {

TEST(WeightCopies, MakesEachOnceUntilItForgets) {
  WeightCopies copies;
  const auto weight = torch::randn({3, 5}).requires_grad_();
  const auto copy = copies.of(weight, torch::kBFloat16);
  EXPECT_EQ(copy.scalar_type(), torch::kBFloat16);
  EXPECT_FALSE(copy.requires_grad());
  EXPECT_TRUE(copies.of(weight, torch::kBFloat16).is_same(copy));
  EXPECT_EQ(copies.bytes(), 30);
  EXPECT_TRUE(copies.of(weight, torch::kFloat).is_same(weight));
  EXPECT_EQ(copies.bytes(), 30);
  EXPECT_EQ(copies.of(weight, torch::kHalf).scalar_type(), torch::kHalf);
  copies.forget();
  EXPECT_EQ(copies.bytes(), 0);
  EXPECT_FALSE(copies.of(weight, torch::kBFloat16).is_same(copy));
}

TEST(WeightCopies, ServeProductsWithAndWithoutAGraph) {
  WeightCopies copies;
  const auto x = torch::randn({4, 5}).requires_grad_();
  const auto weight = torch::randn({3, 5}).requires_grad_();
  const auto bias = torch::randn({3}).requires_grad_();
  const AutocastScope autocast(torch::kCPU, Precision::kBf16);
  const auto expected = torch::linear(x, weight, bias);
  const OwnGraphs own(&copies);
  const auto out = accumulating_linear(x, weight, bias);
  EXPECT_TRUE(out.equal(expected));
  EXPECT_EQ(copies.bytes(), 2 * (15 + 3));
  {
    const torch::NoGradGuard no_grad;
    weight.add_(1);  // a copy is what it was until somebody says so
    EXPECT_TRUE(accumulating_linear(x, weight, bias).equal(expected));
    copies.forget();
    EXPECT_TRUE(accumulating_linear(x, weight, bias).equal(torch::linear(x, weight, bias)));
  }
  EXPECT_THROW(out.sum().backward(), c10::Error);  // a weight that changed before its backward
}

TEST(WeightCopies, AreLeftAloneInFullPrecision) {
  WeightCopies copies;
  const OwnGraphs own(&copies);
  const auto weight = torch::randn({3, 5}).requires_grad_();
  accumulating_linear(torch::randn({4, 5}), weight);
  EXPECT_EQ(copies.bytes(), 0);
}

}  // namespace
}  // namespace pipewright
