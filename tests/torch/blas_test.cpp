#include "pipewright/torch/blas.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace pipewright {
namespace {

TEST(BetterBlasCore, IsTheCpusOwnWhereOpenBlasTakesItForAnOldOne) {
  EXPECT_EQ(better_blas_core("Prescott", true, true), "SKYLAKEX");
  EXPECT_EQ(better_blas_core("Prescott", false, true), "HASWELL");
}

TEST(BetterBlasCore, IsNoneWhereOpenBlasKnowsTheCpu) {
  EXPECT_EQ(better_blas_core("Prescott", false, false), "");  // it is one
  EXPECT_EQ(better_blas_core("Zen", false, true), "");
  EXPECT_EQ(better_blas_core("SkylakeX", true, true), "");
  EXPECT_EQ(better_blas_core("", true, true), "");  // another BLAS
}

/// Whether it starts anew, as on some CPUs, or goes on: it ends, and does not start again and
/// again.
TEST(UseFastBlasDeathTest, StartsAnewAtMostOnce) {
  const auto run = [] {
    ::unsetenv("OPENBLAS_CORETYPE");
    char name[] = "torch_tests";
    char filter[] = "--gtest_list_tests";
    char* const argv[] = {static_cast<char*>(name), static_cast<char*>(filter), nullptr};
    use_fast_blas(static_cast<char* const*>(argv));
    std::exit(0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pipewright
