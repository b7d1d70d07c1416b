// Promise 2 over processes: the bits of one process, for every schedule.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/schedule/schedule.h"
#include "tests/processes/train_worker.h"

namespace pipewright {
namespace {

/// All processes' weights together are those of one process, and all know the same losses.
void expect_the_bits_of_one_process(Arguments arguments, int ranks) {
  arguments["ranks"] = std::to_string(ranks);
  arguments["transport"] = "threads";
  const TrainResult expected = train_as(arguments);
  arguments["transport"] = "gloo";
  Processes processes("train", ranks, arguments);
  processes.expect_success();
  if (testing::Test::HasFailure()) return;
  std::map<std::string, int> holders;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& [name, tensor] : read_result(processes, rank)) {
      ++holders[name];
      ASSERT_TRUE(expected.contains(name)) << name;
      EXPECT_TRUE(tensor.equal(expected.at(name))) << "rank " << rank << ": " << name;
    }
  }
  for (const auto& [name, tensor] : expected) EXPECT_GE(holders[name], 1) << name << " is lost";
}

class ProcessParity : public testing::TestWithParam<std::string> {};

TEST_P(ProcessParity, WeightsAreThoseOfOneProcess) {
  for (const int ranks : {2, 3, 4}) {
    if (ranks == 4 && find_schedule(GetParam()).default_chunks > 1) continue;  // too few layers
    SCOPED_TRACE(testing::Message() << "K=" << ranks);
    Arguments arguments = plain_run(GetParam());
    arguments["features"] = "skips tied norm dropout masked";
    arguments["optimizer"] = ranks == 2 ? "sgd" : "adam";
    arguments["clip_norm"] = ranks == 3 ? "0.5" : "0";
    if (ranks == 3) arguments["over_gloo"] = "";  // else through shared memory
    expect_the_bits_of_one_process(arguments, ranks);
  }
}

std::vector<std::string> training_schedules() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : all_schedules()) {
    if (!info.forward_only && !info.asynchronous) names.emplace_back(info.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, ProcessParity, testing::ValuesIn(training_schedules()),
                         [](const auto& test) { return name_of_schedule(test); });

TEST(ProcessParityOptions, RecomputeMergeAndLossScalingChangeNoBit) {
  for (const RecomputeMode mode : {RecomputeMode::kAll, RecomputeMode::kEvery}) {
    Arguments arguments = plain_run("1f1b");
    arguments["features"] = "skips tied dropout frozen";
    arguments["recompute"] = std::to_string(static_cast<int>(mode));
    arguments["merge_steps"] = "2";
    arguments["scale_loss"] = mode == RecomputeMode::kAll ? "1" : "0";
    expect_the_bits_of_one_process(arguments, 2);
  }
}

}  // namespace
}  // namespace pipewright
