// Promises 1 and 2: the gradients of plain single-device training, and the same bits for every
// partition, schedule and recompute mode.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipewright/schedule/schedule.h"
#include "tests/train/test_models.h"

namespace pipewright {
namespace {

struct Case {
  std::string schedule;
  Features features;
};

std::string name_of(const Case& c) {
  std::string name = c.schedule;
  if (c.features.skips) name += "_skips";
  if (c.features.tied) name += "_tied";
  if (c.features.batch_norm) name += "_norm";
  if (c.features.dropout) name += "_dropout";
  if (c.features.masked) name += "_masked";
  if (c.features.frozen) name += "_frozen";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Parity : public testing::TestWithParam<Case> {
 protected:
  int most_ranks() const {
    return GetParam().schedule == "zb-v" || GetParam().schedule == "interleaved-1f1b" ? 3 : 4;
  }
};

TEST_P(Parity, GradientsEqualSingleDeviceTraining) {
  const Features& f = GetParam().features;
  const Loss loss = cross_entropy();
  const bool sees_micro_batches = f.batch_norm || f.dropout;
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
    for (const auto& [rows, micro_batches] : {std::pair{8, 1}, {8, 4}, {11, 4}, {3, 8}, {13, 6}}) {
      if (f.batch_norm && rows / std::min(rows, micro_batches) < 2)
        continue;  // LibTorch wants two values
      for (const auto recompute : kRecomputeModes) {
        SCOPED_TRACE(testing::Message() << "K=" << ranks << " M=" << micro_batches << " rows="
                                        << rows << " recompute=" << static_cast<int>(recompute));
        const Batch batch = make_batch(rows, 0, f);
        const Sequence reference = make_model(f);
        const int parts = sees_micro_batches ? std::min(rows, micro_batches) : 1;
        const double expected_loss = plain_gradients(reference, loss, batch, parts, 0);
        Strategy strategy = strategy_of(ranks, micro_batches, GetParam().schedule);
        strategy.recompute = recompute;
        strategy.recompute_every = 2;
        Trainer trainer(make_model(f), loss, sgd(), strategy);
        EXPECT_NEAR(trainer.gradients(batch).loss, expected_loss, 1e-12);
        EXPECT_LE(gradient_difference(trainer.model(), reference), 1e-10);
      }
    }
  }
}

TEST_P(Parity, WeightsAreBitIdenticalAfterFiveSteps) {
  const Features& f = GetParam().features;
  struct Way {
    bool use_adam;
    int merge_steps;
  };
  for (const auto& [use_adam, merge_steps] : {Way{false, 1}, Way{true, 1}, Way{true, 2}}) {
    Tensors first;
    double first_loss = 0;
    for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
      for (const auto recompute : kRecomputeModes) {
        SCOPED_TRACE(testing::Message()
                     << "K=" << ranks << " recompute=" << static_cast<int>(recompute)
                     << " adam=" << use_adam << " merge=" << merge_steps);
        const bool is_first = ranks == 1 && recompute == RecomputeMode::kNone;
        Strategy strategy = strategy_of(ranks, 4, is_first ? "1f1b" : GetParam().schedule);
        strategy.recompute = recompute;
        strategy.recompute_every = 2;
        strategy.clip_norm = 0.5;
        strategy.merge_steps = merge_steps;
        Trainer trainer(make_model(f), cross_entropy(), use_adam ? adam() : sgd(), strategy);
        double loss = 0;
        for (int step = 0; step < 5 * merge_steps; ++step)
          loss = trainer.step(make_batch(11, step, f)).loss;
        if (is_first) {
          first = state_of(trainer);
          first_loss = loss;
        }
        EXPECT_EQ(loss, first_loss);
        EXPECT_THAT(different(trainer, first), testing::IsEmpty());
      }
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.forward_only || info.asynchronous) continue;
    const std::string name(info.name);
    cases.push_back({name, {}});
    cases.push_back({name, {.skips = true, .tied = true}});
    cases.push_back({name, {.batch_norm = true, .dropout = true}});
    cases.push_back(
        {name, {.skips = true, .tied = true, .batch_norm = true, .dropout = true, .masked = true}});
    cases.push_back({name, {.frozen = true}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Parity, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace pipewright
