#include "pipewright/nn/batch_norm.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace pipewright {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNormOptions;

constexpr int kChannels = 5;

// 11 rows into 4: 3, 3, 3 and 2.
std::vector<Tensor> split(const Tensor& x) { return x.tensor_split(4); }

Tensor batch(std::vector<std::int64_t> shape, int seed, torch::Dtype dtype = torch::kDouble) {
  torch::manual_seed(seed);
  return (torch::randn(shape, torch::kDouble) * 3 + 100).to(dtype);
}

BatchNorm1d double_norm() {
  BatchNorm1d norm(kChannels);
  norm->to(torch::kDouble);
  return norm;
}

/// One mini-batch through `norm`, each micro-batch recomputed once the last has run.
template <typename Norm>
void run_deferred(Norm& norm, DeferredBatchNorm& deferred, const Tensor& x) {
  for (const bool recomputing : {false, true}) {
    std::int64_t m = 0;
    for (const Tensor& part : split(x)) {
      const DeferredBatchNorm::MicroBatch scope(deferred, m++, recomputing);
      norm->forward(part);
    }
  }
  deferred.finish_mini_batch();
}

template <typename Norm>
void expect_same_bits(const Norm& a, const Norm& b) {
  EXPECT_TRUE(a->running_mean.equal(b->running_mean));
  EXPECT_TRUE(a->running_var.equal(b->running_var));
  EXPECT_TRUE(a->num_batches_tracked.equal(b->num_batches_tracked));
}

template <typename Norm>
void expect_close(const Norm& a, const Norm& b, double tolerance) {
  EXPECT_TRUE(torch::allclose(a->running_mean, b->running_mean, tolerance, 0));
  EXPECT_TRUE(torch::allclose(a->running_var, b->running_var, tolerance, 0));
  EXPECT_TRUE(a->num_batches_tracked.equal(b->num_batches_tracked));
}

/// Dimensions of the input, its type, that of the module, affine, momentum or none.
using Case = std::tuple<int, torch::Dtype, torch::Dtype, bool, std::optional<double>>;

class DeferredSweep : public ::testing::TestWithParam<Case> {
 protected:
  template <typename Norm>
  void compare_with_whole_batches(std::vector<std::int64_t> shape) {
    const auto [_, input_dtype, dtype, affine, momentum] = GetParam();
    auto options = BatchNormOptions(kChannels).affine(affine).momentum({});
    if (momentum) options.momentum(*momentum);
    Norm whole(options);
    Norm parts(options);
    whole->to(dtype);
    parts->to(dtype);
    DeferredBatchNorm deferred(*parts);
    for (int step = 0; step < 3; ++step) {
      const Tensor x = batch(shape, step, input_dtype);
      whole->forward(x);
      run_deferred(parts, deferred, x);
    }
    const double tolerance = dtype == torch::kDouble ? 1e-12 : 1e-5;
    expect_close(whole, parts, dtype == torch::kBFloat16 ? 0.02 : tolerance);
    EXPECT_EQ(parts->num_batches_tracked.template item<std::int64_t>(), 3);
  }
};

TEST_P(DeferredSweep, RunningStatisticsAreThoseOfWholeBatches) {
  switch (std::get<0>(GetParam())) {
    case 2: return compare_with_whole_batches<BatchNorm1d>({11, kChannels});
    case 3: return compare_with_whole_batches<BatchNorm1d>({11, kChannels, 7});
    case 4: return compare_with_whole_batches<BatchNorm2d>({11, kChannels, 3, 4});
    default: return compare_with_whole_batches<torch::nn::BatchNorm3d>({11, kChannels, 2, 3, 2});
  }
}

using ::testing::Values;
const auto kMomenta = Values(std::optional(0.1), std::optional(1.0), std::nullopt);
INSTANTIATE_TEST_SUITE_P(Float64, DeferredSweep,
                         ::testing::Combine(::testing::Range(2, 6), Values(at::kDouble),
                                            Values(at::kDouble), ::testing::Bool(), kMomenta));
INSTANTIATE_TEST_SUITE_P(Float32, DeferredSweep,
                         ::testing::Combine(::testing::Range(2, 6), Values(at::kFloat),
                                            Values(at::kFloat), ::testing::Bool(), kMomenta));
INSTANTIATE_TEST_SUITE_P(BFloat16, DeferredSweep,
                         ::testing::Combine(::testing::Range(2, 6), Values(at::kBFloat16),
                                            Values(at::kBFloat16, at::kFloat), Values(true),
                                            kMomenta));

TEST(DeferredBatchNorm, OutputsAndGradientsAreThoseOfPlainMicroBatches) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    BatchNorm2d plain(kChannels);
    BatchNorm2d ours(kChannels);
    plain->to(dtype);
    ours->to(dtype);
    DeferredBatchNorm deferred(*ours);
    for (const Tensor& part : split(batch({11, kChannels, 3, 4}, 1, dtype))) {
      const Tensor x = part.clone().requires_grad_();
      const Tensor y = part.clone().requires_grad_();
      const DeferredBatchNorm::MicroBatch scope(deferred, 0, false);
      const Tensor expected = plain->forward(x);
      const Tensor output = ours->forward(y);
      expected.pow(3).sum().backward();
      output.pow(3).sum().backward();
      EXPECT_TRUE(output.equal(expected));
      EXPECT_TRUE(y.grad().equal(x.grad()));
    }
    EXPECT_TRUE(ours->weight.grad().equal(plain->weight.grad()));
    EXPECT_TRUE(ours->bias.grad().equal(plain->bias.grad()));
  }
}

TEST(DeferredBatchNorm, BitsDependNeitherOnOrderNorOnThreads) {
  const std::vector<Tensor> parts = split(batch({11, kChannels, 3, 4}, 1, torch::kFloat));
  BatchNorm2d reference(kChannels);
  DeferredBatchNorm in_order(*reference);
  run_deferred(reference, in_order, torch::cat(parts));
  BatchNorm2d norm(kChannels);
  DeferredBatchNorm deferred(*norm);
  for (const std::int64_t m : {2, 0, 3, 1}) {
    std::thread([&, m] {
      const DeferredBatchNorm::MicroBatch scope(deferred, m, false);
      norm->forward(parts[m]);
    }).join();
  }
  deferred.finish_mini_batch();
  expect_same_bits(norm, reference);
}

TEST(DeferredBatchNorm, NothingMovesBeforeTheMiniBatchEnds) {
  BatchNorm2d fresh(kChannels);
  BatchNorm2d norm(kChannels);
  DeferredBatchNorm deferred(*norm);
  {
    const DeferredBatchNorm::MicroBatch scope(deferred, 0, false);
    norm->forward(batch({4, kChannels, 2, 2}, 1, torch::kFloat));
  }
  expect_same_bits(norm, fresh);
  deferred.abandon();
  deferred.finish_mini_batch();
  expect_same_bits(norm, fresh);
}

TEST(DeferredBatchNorm, BuffersRemainTheSameTensors) {
  BatchNorm2d norm(kChannels);
  const auto before = norm->named_buffers();
  DeferredBatchNorm deferred(*norm);
  run_deferred(norm, deferred, batch({11, kChannels, 2, 2}, 1, torch::kFloat));
  for (const auto& buffer : norm->named_buffers()) {
    EXPECT_TRUE(buffer.value().is_same(before[buffer.key()])) << buffer.key();
  }
  EXPECT_TRUE(norm->running_mean.is_same(before["running_mean"]));
  EXPECT_TRUE(norm->running_var.is_same(before["running_var"]));
  EXPECT_TRUE(norm->num_batches_tracked.is_same(before["num_batches_tracked"]));
}

TEST(DeferredBatchNorm, OneValueAChannelIsRefusedAndLeavesNothing) {
  BatchNorm1d fresh(kChannels);
  BatchNorm1d norm(kChannels);
  DeferredBatchNorm deferred(*norm);
  try {
    const DeferredBatchNorm::MicroBatch scope(deferred, 0, false);
    norm->forward(batch({4, kChannels}, 1, torch::kFloat));
    norm->forward(batch({1, kChannels}, 1, torch::kFloat));
    FAIL() << "accepted";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("Expected more than 1 value per channel"),
              std::string::npos);
  }
  expect_same_bits(norm, fresh);
  deferred.finish_mini_batch();
  expect_same_bits(norm, fresh);
}

TEST(DeferredBatchNorm, AMicroBatchForwardedAgainCountsOnce) {
  const Tensor x = batch({11, kChannels}, 1);
  BatchNorm1d once = double_norm();
  BatchNorm1d again = double_norm();
  DeferredBatchNorm deferred(*again);
  for (int i = 0; i < 2; ++i) {
    const DeferredBatchNorm::MicroBatch scope(deferred, 0, false);
    again->forward(x);
  }
  deferred.finish_mini_batch();
  once->forward(x);
  expect_close(again, once, 1e-12);
}

TEST(DeferredBatchNorm, EmptyMicroBatchesAddNothing) {
  const Tensor x = batch({3, kChannels, 4}, 1);
  BatchNorm1d whole = double_norm();
  BatchNorm1d parts = double_norm();
  DeferredBatchNorm deferred(*parts);
  run_deferred(parts, deferred, x);  // the fourth of three rows is empty
  whole->forward(x);
  expect_close(parts, whole, 1e-12);
}

TEST(DeferredBatchNorm, EvalAndUntrackedNormsAreLeftAlone) {
  const Tensor x = batch({11, kChannels}, 1, torch::kFloat);
  BatchNorm1d fresh(kChannels);
  BatchNorm1d eval(kChannels);
  eval->eval();
  DeferredBatchNorm deferred(*eval);
  run_deferred(eval, deferred, x);
  expect_same_bits(eval, fresh);
  BatchNorm1d untracked(BatchNormOptions(kChannels).track_running_stats(false));
  EXPECT_FALSE(DeferredBatchNorm(*untracked).any());
}

/// A norm that is called twice and registered twice, and a functional one over buffers.
struct Block : torch::nn::Module {
  explicit Block(std::optional<double> momentum) {
    BatchNormOptions options(kChannels);
    if (!momentum) options.momentum({});
    norm = register_module("norm", BatchNorm1d(options));
    register_module("alias", norm);
    mean = register_buffer("mean", torch::zeros({kChannels}));
    var = register_buffer("var", torch::ones({kChannels}));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) {
    auto options = F::BatchNormFuncOptions().momentum(0.3).training(true);
    return F::batch_norm(norm(x) + norm(x * 2), mean, var, options);
  }
  BatchNorm1d norm{nullptr};
  Tensor mean, var;
};

TEST(DeferredBatchNorm, FollowsEveryCallInsideALayer) {
  for (const auto momentum : {std::optional(0.1), std::optional<double>()}) {
    const auto plain = std::make_shared<Block>(momentum);
    const auto ours = std::make_shared<Block>(momentum);
    std::vector<DeferredBatchNorm> list;  // as an executor keeps them: moved
    list.emplace_back(*ours);
    ASSERT_TRUE(list.back().any());
    // Equal rows in all parts: what the second norm sees does not depend on the split.
    const Tensor rows = batch({2, kChannels}, 1);
    for (int step = 0; step < 2; ++step) {
      plain->forward(rows.repeat({4, 1}));
      run_deferred(ours, list.back(), rows.repeat({4, 1}));
    }
    expect_close(plain->norm, ours->norm, 1e-12);
    EXPECT_EQ(ours->norm->num_batches_tracked.item<std::int64_t>(), 4);
    EXPECT_TRUE(torch::allclose(plain->mean, ours->mean, 1e-12, 1e-12));
    EXPECT_TRUE(torch::allclose(plain->var, ours->var, 1e-12, 0));
  }
}

TEST(DeferredBatchNorm, LeavesInstanceNormAlone) {
  const auto options = torch::nn::InstanceNorm1dOptions(kChannels).track_running_stats(true);
  torch::nn::InstanceNorm1d plain(options);
  torch::nn::InstanceNorm1d ours(options);
  const Tensor x = batch({4, kChannels, 6}, 1, torch::kFloat);
  DeferredBatchNorm deferred(*ours);
  const DeferredBatchNorm::MicroBatch scope(deferred, 0, false);
  EXPECT_TRUE(ours->forward(x).equal(plain->forward(x)));
  EXPECT_TRUE(ours->running_mean.equal(plain->running_mean));
}

TEST(DeferredBatchNormOnCuda, RunningStatisticsAreThoseOfWholeBatches) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const auto dtype : {torch::kDouble, torch::kFloat}) {  // native kernels, cuDNN's
    const Tensor x = batch({11, kChannels, 8, 8}, 1, dtype).cuda();
    BatchNorm2d whole(kChannels);
    BatchNorm2d parts(kChannels);
    DeferredBatchNorm deferred(*parts);  // before the move to the GPU
    for (auto* norm : {&whole, &parts}) (*norm)->to(torch::kCUDA, dtype);
    whole->forward(x);
    run_deferred(parts, deferred, x);
    expect_close(whole, parts, dtype == torch::kDouble ? 1e-12 : 1e-5);
  }
}

}  // namespace
}  // namespace pipewright
