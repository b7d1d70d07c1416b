// Asynchronous schedules compute what they are defined to compute: gradients with the weights of
// some updates ago, applied by each stage as they come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/refusal.h"
#include "tests/train/delayed_reference.h"

namespace pipewright {
namespace {

using testing::HasSubstr;

struct Case {
  std::string schedule;
  int ranks;
  int micro_batches;
  std::string what = "";
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_k{}_m{}{}", info.param.schedule, info.param.ranks,
                                 info.param.micro_batches, info.param.what);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Twenty mini-batches by definition, and by the pipeline.
void expect_same_bits(const Delayed& delayed, const Features& features = {}) {
  const auto expected = train_by_definition(delayed, features);
  const auto actual = train_over_pipeline(delayed, features);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(actual.at(name).equal(tensor))
        << name << " differs by " << (actual.at(name) - tensor).abs().max().item<double>();
}

class Asynchronous : public testing::TestWithParam<Case> {};

TEST_P(Asynchronous, WeightsAreThoseOfTheDefinition) {
  Delayed delayed;
  delayed.strategy = strategy_of(GetParam().ranks, GetParam().micro_batches, GetParam().schedule);
  if (GetParam().what == "_vertical") delayed.strategy.vertical_sync = true;
  if (GetParam().what == "_merged") delayed.strategy.merge_steps = 3;
  if (GetParam().what == "_recomputed") delayed.strategy.recompute = RecomputeMode::kAll;
  if (GetParam().what == "_blocks") delayed.strategy.recompute = RecomputeMode::kEvery;
  if (GetParam().what == "_drained") delayed.drain_every = 7;
  if (GetParam().what == "_adam") delayed.optimizer = adam();
  if (GetParam().what == "_bf16") delayed.strategy.precision = Precision::kBf16;
  Features features;
  if (GetParam().what == "_features") features = {.skips = true, .dropout = true, .frozen = true};
  expect_same_bits(delayed, features);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int micro_batches : {1, 2, 4, 5}) {
      all.push_back({"pipedream", ranks, micro_batches});
      if (micro_batches >= ranks) all.push_back({"pipedream-2bw", ranks, micro_batches});
    }
  }
  for (const int ranks : {2, 3, 4}) {
    all.push_back({"pipedream", ranks, 1, "_vertical"});
    all.push_back({"pipedream", ranks, 2, "_vertical"});
    for (const char* what :
         {"_merged", "_recomputed", "_blocks", "_drained", "_adam", "_features", "_bf16"}) {
      all.push_back({"pipedream", ranks, 2, what});
      all.push_back({"pipedream-2bw", ranks, 4, what});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Asynchronous, testing::ValuesIn(cases()), name_of);

TEST(AsynchronousTraining, IsNotSynchronousTraining) {
  Delayed delayed;
  delayed.strategy = strategy_of(3, 4, "pipedream");
  Delayed plain;
  plain.strategy = strategy_of(3, 4, "1f1b");
  const auto late = train_over_pipeline(delayed, {});
  const auto early = train_over_pipeline(plain, {});
  EXPECT_FALSE(torch::equal(late.at("block0.up.weight"), early.at("block0.up.weight")));
}

}  // namespace
}  // namespace pipewright
