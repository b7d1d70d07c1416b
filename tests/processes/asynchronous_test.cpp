// Asynchronous schedules over processes: the delayed gradients of their definition, bit by bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/processes/train_worker.h"
#include "tests/train/delayed_reference.h"

namespace pipewright {
namespace {

Arguments delayed_run(const std::string& schedule, int ranks, const std::string& micro_batches) {
  Arguments arguments = plain_run(schedule);
  arguments["ranks"] = std::to_string(ranks);
  arguments["micro_batches"] = micro_batches;
  arguments["steps"] = "20";
  arguments["transport"] = "gloo";
  return arguments;
}

/// All processes' weights together are those of the definition; all know the same losses, which are
/// those of threads.
void expect_the_bits_of_the_definition(Arguments arguments) {
  const int ranks = std::stoi(arguments.at("ranks"));
  const int replicas = std::stoi(arguments.at("replicas"));
  Processes processes("train", ranks * replicas, arguments);
  processes.expect_success();
  if (testing::Test::HasFailure()) return;
  Delayed delayed;
  delayed.rows = std::stoi(arguments.at("rows"));
  delayed.replicas = replicas;
  delayed.strategy =
      strategy_of(ranks, std::stoi(arguments.at("micro_batches")), arguments.at("schedule"));
  delayed.strategy.vertical_sync = arguments.contains("vertical_sync");
  const State expected = train_by_definition(delayed, {});
  std::size_t found = 0;
  for (int rank = 0; rank < ranks * replicas; ++rank) {
    for (const auto& [name, tensor] : read_result(processes, rank)) {
      if (name == "losses") continue;
      ++found;
      EXPECT_TRUE(tensor.equal(expected.at(name))) << "rank " << rank << ": " << name;
    }
  }
  EXPECT_EQ(found, expected.size() * static_cast<std::size_t>(replicas));
  if (replicas > 1) return;
  arguments["transport"] = "threads";
  const torch::Tensor losses = train_as(arguments).at("losses");
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_TRUE(read_result(processes, rank).at("losses").equal(losses)) << "rank " << rank;
}

class AsynchronousProcesses : public testing::TestWithParam<int> {};

TEST_P(AsynchronousProcesses, HaveTheWeightsOfTheDefinition) {
  const int ranks = GetParam();
  expect_the_bits_of_the_definition(delayed_run("pipedream", ranks, "1"));
  expect_the_bits_of_the_definition(delayed_run("pipedream", ranks, "2"));
  expect_the_bits_of_the_definition(delayed_run("pipedream-2bw", ranks, "4"));
  expect_the_bits_of_the_definition(delayed_run("eager-pipedream", ranks, "2"));
  expect_the_bits_of_the_definition(delayed_run("eager-pipedream-2bw", ranks, "7"));
  Arguments vertical = delayed_run("pipedream", ranks, "1");
  vertical["vertical_sync"] = "1";
  expect_the_bits_of_the_definition(vertical);
}

INSTANTIATE_TEST_SUITE_P(Ranks, AsynchronousProcesses, testing::Values(2, 3, 4));

TEST(AsynchronousReplicas, HaveTheWeightsOfTheDefinition) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    for (const char* shard : {"0", "1"}) {
      Arguments arguments = delayed_run(schedule, 2, "2");
      arguments["replicas"] = "2";
      arguments["shard"] = shard;
      expect_the_bits_of_the_definition(arguments);
    }
  }
}

}  // namespace
}  // namespace pipewright
