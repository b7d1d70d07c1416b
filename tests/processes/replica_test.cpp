// Data parallelism: replicas give the gradients of one process on the joined batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/processes/train_worker.h"

namespace pipewright {
namespace {

double apart(const torch::Tensor& a, const torch::Tensor& b) {
  const auto x = a.to(torch::kFloat64), y = b.to(torch::kFloat64);
  return (x - y).abs().max().item<double>() / (y.abs().max().item<double>() + 1e-12);
}

/// What each process of a run ended with.
std::vector<TrainResult> run(const Arguments& arguments) {
  const int ranks = std::stoi(arguments.at("ranks"));
  const int replicas = std::stoi(arguments.at("replicas"));
  Processes processes("train", ranks * replicas, arguments);
  processes.expect_success();
  std::vector<TrainResult> results;
  for (int rank = 0; rank < ranks * replicas && !testing::Test::HasFailure(); ++rank)
    results.push_back(read_result(processes, rank));
  return results;
}

/// One process on the whole batch, in as many micro-batches as all replicas have together.
TrainResult joined(Arguments arguments) {
  const int all = std::stoi(arguments["micro_batches"]) * std::stoi(arguments["replicas"]);
  arguments["micro_batches"] = std::to_string(all);
  arguments["transport"] = "threads";
  arguments["replicas"] = "1";
  arguments["shard"] = "0";
  return train_as(arguments);
}

Arguments grid(int ranks, int replicas) {
  Arguments arguments = plain_run("1f1b");
  arguments["transport"] = "gloo";
  arguments["ranks"] = std::to_string(ranks);
  arguments["replicas"] = std::to_string(replicas);
  arguments["micro_batches"] = "2";
  arguments["rows"] = "17";  // not the same for every replica
  arguments["features"] = "skips tied norm dropout masked";
  // Not Adam: the gradient of a bias before a batch norm is rounding alone, which Adam makes a
  // step.
  arguments["optimizer"] = "sgd";
  arguments["clip_norm"] = "0.5";
  return arguments;
}

void expect_joined(const Arguments& arguments) {
  const TrainResult expected = joined(arguments);
  const std::vector<TrainResult> results = run(arguments);
  const auto ranks = static_cast<std::size_t>(std::stoi(arguments.at("ranks")));
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (const auto& [name, tensor] : results[i]) {
      EXPECT_LE(apart(tensor, expected.at(name)), 1e-10) << "process " << i << ": " << name;
      EXPECT_TRUE(tensor.equal(results[i % ranks].at(name)))
          << "process " << i << " is not as replica 0: " << name;
    }
  }
}

TEST(Replicas, OfOneStageGiveTheJoinedBatch) { expect_joined(grid(1, 2)); }
TEST(Replicas, ThreeOfThemGiveTheJoinedBatch) { expect_joined(grid(1, 3)); }
TEST(Replicas, OfAPipelineGiveTheJoinedBatch) { expect_joined(grid(2, 2)); }

TEST(Replicas, HoldWithSplitBackwardsMergeAndLossScaling) {
  Arguments arguments = grid(2, 2);
  arguments["schedule"] = "zb-h1";
  arguments["merge_steps"] = "2";
  arguments["scale_loss"] = "1";
  arguments["features"] = "tied dropout";
  arguments["optimizer"] = "adam";
  expect_joined(arguments);
}

TEST(Replicas, AShardedOptimizerChangesNoBit) {
  for (const char* optimizer : {"sgd", "adam"}) {
    Arguments arguments = grid(1, 3);
    arguments["optimizer"] = optimizer;
    const std::vector<TrainResult> whole = run(arguments);
    arguments["shard"] = "1";
    const std::vector<TrainResult> sharded = run(arguments);
    ASSERT_EQ(whole.size(), sharded.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (const auto& [name, tensor] : whole[i])
        EXPECT_TRUE(tensor.equal(sharded[i].at(name))) << "process " << i << ": " << name;
    }
  }
}

TEST(Replicas, AreBitIdenticalFromRunToRun) {
  const std::vector<TrainResult> first = run(grid(1, 3));
  const std::vector<TrainResult> second = run(grid(1, 3));
  ASSERT_EQ(first.size(), second.size());
  for (const auto& [name, tensor] : first[0]) EXPECT_TRUE(tensor.equal(second[0].at(name))) << name;
}

}  // namespace
}  // namespace pipewright
