// Asynchronous schedules compute what they are defined to compute: gradients with the weights of
// some updates ago, applied by each stage as they come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/schedule/schedule.h"
#include "pipewright/sim/simulate.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"
#include "tests/train/delayed_reference.h"

namespace pipewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_checkpoint::TempFolder;

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

void PrintTo(const Case& c, std::ostream* out) { *out << c.schedule << " K=" << c.ranks; }

/// Twenty mini-batches by definition, and by the pipeline.
void expect_same(const Delayed& delayed, const Features& features) {
  const auto expected = train_by_definition(delayed, features);
  const auto actual = train_over_pipeline(delayed, features);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_LE((actual.at(name) - tensor).abs().max().item<double>(), features.skips ? 1e-14 : 0)
        << name;
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
  if (GetParam().what == "_drained_between_updates") {
    delayed.strategy.merge_steps = 3;
    delayed.drain_every = 7;
  }
  if (GetParam().what == "_adam") delayed.optimizer = adam();
  if (GetParam().what == "_bf16") delayed.strategy.precision = Precision::kBf16;
  Features features;
  if (GetParam().what == "_features") features = {.dropout = true, .frozen = true};
  // Autograd adds the two gradients of what is stashed in an order of its own.
  if (GetParam().what == "_skips") features = {.skips = true};
  expect_same(delayed, features);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int micro_batches : {1, 2, 4, 5}) {
      all.push_back({"pipedream", ranks, micro_batches});
      if (micro_batches >= ranks) all.push_back({"pipedream-2bw", ranks, micro_batches});
      all.push_back({"eager-pipedream", ranks, micro_batches});
    }
    all.push_back({"eager-pipedream-2bw", ranks, 2 * ranks - 1});
  }
  for (const int ranks : {2, 3, 4}) {
    all.push_back({"pipedream", ranks, 1, "_vertical"});
    all.push_back({"pipedream", ranks, 2, "_vertical"});
    all.push_back({"eager-pipedream", ranks, 2, "_vertical"});
    for (const char* what : {"_merged", "_recomputed", "_blocks", "_drained",
                             "_drained_between_updates", "_adam", "_features", "_skips", "_bf16"}) {
      all.push_back({"pipedream", ranks, 2, what});
      all.push_back({"pipedream-2bw", ranks, 4, what});
      all.push_back({"eager-pipedream-2bw", ranks, 7, what});
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

/// Steps of a run, and what came of them.
struct Course {
  explicit Course(const Strategy& strategy, int steps = 12, const Features& features = {})
      : trainer(make_model(features), cross_entropy(), sgd(), strategy) {
    for (int step = 0; step < steps; ++step) take(trainer.step(make_batch(11, step, features)));
  }
  void take(const StepResult& result) {
    if (result.pending) {
      ++num_pending;
    } else {
      results.push_back(result);
    }
  }
  Trainer trainer;
  std::vector<StepResult> results;
  int num_pending = 0;
};

TEST(AsynchronousResults, ComeInOrderAndAllOfThem) {
  for (const int ranks : {1, 2, 4}) {
    for (const int micro_batches : {1, 4}) {
      Course run(strategy_of(ranks, micro_batches, "pipedream"));
      EXPECT_GE(run.num_pending, 1);
      run.take(run.trainer.step(make_batch(11, 12, {})));
      run.trainer.evaluate(make_batch(11, 50, {}));  // finishes all that are under way
      run.take(run.trainer.step(make_batch(11, 13, {})));
      for (const StepResult& result : run.trainer.drain()) run.take(result);
      ASSERT_EQ(run.results.size(), 14U);
      for (std::size_t i = 0; i < 14; ++i) {
        EXPECT_EQ(run.results[i].step, static_cast<std::int64_t>(i));
        EXPECT_EQ(run.results[i].weight, 11);
        EXPECT_GT(run.results[i].loss, 0);
        EXPECT_GT(run.results[i].seconds, 0);
        EXPECT_TRUE(run.results[i].updated);
      }
      EXPECT_EQ(run.trainer.num_steps(), 14);
      EXPECT_EQ(run.trainer.num_updates(), 14);
      EXPECT_TRUE(run.trainer.drain().empty());
    }
  }
}

TEST(AsynchronousResults, HaveTheFirstLossOfSynchronousTraining) {
  Course late(strategy_of(3, 2, "pipedream"));
  Course plain(strategy_of(3, 2, "1f1b"));
  late.trainer.drain();
  EXPECT_EQ(late.results.front().loss, plain.results.front().loss);
  EXPECT_NE(late.results[5].loss, plain.results[5].loss);
}

TEST(AsynchronousTraining, IsDrainedForACheckpointThatSynchronousTrainingTakesOver) {
  const TempFolder folder;
  for (const char* first : {"pipedream", "pipedream-2bw", "1f1b"}) {
    for (const char* second : {"pipedream", "1f1b"}) {
      const std::string dir = folder.path() + "/" + first + second;
      Course run(strategy_of(3, 4, first), 7);
      run.trainer.save(dir);
      run.trainer.wait_for_save();
      Trainer resumed(make_model({}), cross_entropy(), sgd(), strategy_of(2, 4, second));
      EXPECT_EQ(resumed.resume(dir).step, 7);
      EXPECT_EQ(resumed.num_updates(), 7);
      EXPECT_THAT(different(resumed, state_of(run.trainer)), testing::IsEmpty());
      // What follows is what a drained run of that schedule does.
      Trainer same(make_model({}), cross_entropy(), sgd(), strategy_of(2, 4, second));
      same.resume(dir);
      for (int step = 7; step < 12; ++step) {
        resumed.step(make_batch(11, step, {}));
        same.step(make_batch(11, step, {}));
      }
      EXPECT_THAT(different(resumed, state_of(same)), testing::IsEmpty());
    }
  }
}

TEST(AsynchronousTraining, GoesOnAfterAFailure) {
  Sequence model = make_model({});
  bool fails = false;
  model.add("bomb", [&](torch::Tensor x) {
    if (fails) throw std::runtime_error("boom");
    return x;
  });
  Trainer trainer(model, cross_entropy(), sgd(), strategy_of(3, 2, "pipedream"));
  for (int step = 0; step < 5; ++step) trainer.step(make_batch(11, step, {}));
  trainer.drain();
  fails = true;
  const std::string why = refusal([&] {
    for (int step = 5; step < 9; ++step) trainer.step(make_batch(11, step, {}));
    trainer.drain();
  });
  EXPECT_THAT(why, HasSubstr("rank 2, stage 2, 2F"));
  EXPECT_THAT(why, HasSubstr("boom"));
  fails = false;
  for (int step = 9; step < 12; ++step) trainer.step(make_batch(11, step, {}));
  EXPECT_GT(trainer.evaluate(make_batch(11, 50, {})).loss, 0);
}

TEST(AsynchronousTraining, HoldsAsManyVersionsAsTheSimulatorSays) {
  constexpr int kSteps = 24;  // of which the last results come late
  for (const char* schedule :
       {"pipedream", "pipedream-2bw", "eager-pipedream", "eager-pipedream-2bw"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int micro_batches : {1, 2, 4, 6}) {
        if (micro_batches < least_between_updates(schedule, ranks)) continue;
        Course run(strategy_of(ranks, micro_batches, schedule), kSteps);
        run.trainer.drain();
        StepCosts costs;
        costs.stages.resize(static_cast<std::size_t>(ranks));
        const auto program = make_schedule({.name = schedule,
                                            .ranks = ranks,
                                            .micro_batches = micro_batches,
                                            .mini_batches = kSteps});
        const auto held = simulate(program, costs).asynchronous->versions;
        EXPECT_THAT(run.results.back().versions, testing::ElementsAreArray(held))
            << schedule << " K=" << ranks << " M=" << micro_batches;
      }
    }
  }
}

TEST(AsynchronousTraining, HoldsItsWarmUpAndOneVersions) {
  Course run(strategy_of(4, 1, "pipedream"));
  run.trainer.drain();
  EXPECT_THAT(run.results.back().versions, ElementsAre(4, 3, 2, 1));
  Course twice(strategy_of(4, 4, "pipedream-2bw"));
  twice.trainer.drain();
  EXPECT_THAT(twice.results.back().versions, ElementsAre(2, 2, 2, 2));
}

TEST(AsynchronousTraining, HoldsNothingOfOldVersionsAfterADrain) {
  const auto live = [](Trainer& trainer) {
    std::vector<double> bytes;
    trainer.drain();
    const StepResult result = trainer.gradients(make_batch(12, 40, {}));
    for (const auto& points : result.timeline.memory) bytes.push_back(points.back().bytes);
    return bytes;
  };
  Trainer plain(make_model({}), cross_entropy(), sgd(), strategy_of(3, 3, "1f1b"));
  Trainer late(make_model({}), cross_entropy(), sgd(), strategy_of(3, 3, "pipedream"));
  for (int step = 0; step < 9; ++step) {
    plain.step(make_batch(12, step, {}));
    late.step(make_batch(12, step, {}));
  }
  EXPECT_EQ(live(late), live(plain));
}

std::string refusal_of(const Strategy& strategy, const Features& features = {}) {
  return refusal([&] { Trainer(make_model(features), cross_entropy(), sgd(), strategy); });
}

TEST(AsynchronousTraining, RefusesWhatNeedsAllRanksAtOnce) {
  Strategy strategy = strategy_of(3, 4, "pipedream");
  strategy.clip_norm = 1;
  EXPECT_THAT(refusal_of(strategy), HasSubstr("there is no norm over all of them"));
  strategy.clip_norm = 0;
  strategy.scale_loss = true;
  EXPECT_THAT(refusal_of(strategy), HasSubstr("cannot skip an update together"));
  strategy.scale_loss = {};
  strategy.recompute = RecomputeMode::kExceptLast;
  EXPECT_THAT(refusal_of(strategy), HasSubstr("has no last micro-batch"));
  strategy.recompute = RecomputeMode::kNone;
  EXPECT_THAT(refusal_of(strategy, {.batch_norm = true}),
              HasSubstr("cannot train the batch norm 'running_mean' of layer 'norm'"));
  EXPECT_THAT(refusal_of(strategy, {.tied = true}),
              HasSubstr("which layers 'embed' and 'head' share over two stages"));
  EXPECT_EQ(refusal_of(strategy), "accepted");
  EXPECT_EQ(refusal_of(strategy_of(1, 4, "pipedream"), {.tied = true}), "accepted");
  EXPECT_THAT(
      refusal_of(strategy_of(4, 3, "pipedream-2bw")),
      HasSubstr("needs at least 4 micro-batches an update with 4 ranks, and 3 x 1 steps are "
                "fewer; use micro_batches = 4 or more"));
  EXPECT_THAT(refusal_of(strategy_of(4, 6, "eager-pipedream-2bw")),
              HasSubstr("needs at least 7 micro-batches an update with 4 ranks"));
  strategy = strategy_of(4, 2, "pipedream-2bw");
  strategy.merge_steps = 2;
  EXPECT_EQ(refusal_of(strategy), "accepted");
  strategy.vertical_sync = true;
  EXPECT_THAT(refusal_of(strategy), HasSubstr("vertical_sync is of schedule 'pipedream'"));
}

TEST(AsynchronousTraining, GoesOnAfterABatchWithTooFewMicroBatches) {
  Course run(strategy_of(3, 3, "pipedream-2bw"));
  EXPECT_THAT(refusal([&] { run.trainer.step(make_batch(2, 12, {})); }),
              HasSubstr("would update after 2 micro-batches, but with 3 ranks"));
  run.take(run.trainer.step(make_batch(11, 12, {})));
  for (const StepResult& result : run.trainer.drain()) run.take(result);
  ASSERT_EQ(run.results.size(), 13U);
  EXPECT_EQ(run.results.back().step, 12);
  Course other(strategy_of(3, 3, "pipedream-2bw"), 13);
  EXPECT_THAT(different(run.trainer, state_of(other.trainer)), testing::IsEmpty());
}

TEST(AsynchronousTraining, RefusesALossWhoseWeightIsKnownTooLate) {
  Loss loss = cross_entropy();
  loss.weight = nullptr;
  Trainer trainer(make_model({}), loss, sgd(), strategy_of(2, 2, "pipedream"));
  const std::string why = refusal([&] {
    for (int step = 0; step < 5; ++step) trainer.step(make_batch(11, step, {.masked = true}));
    trainer.drain();
  });
  EXPECT_THAT(why, HasSubstr("set Loss::weight so that it is known before the step"));
}

}  // namespace
}  // namespace pipewright
