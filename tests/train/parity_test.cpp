// Promises 1 and 2: the gradients of plain single-device training, and the same bits for every
// partition, schedule and recompute mode.

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

OptimizerFactory sgd() {
  return [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.05).momentum(0.9));
  };
}

OptimizerFactory adam() {
  return [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                torch::optim::AdamOptions(1e-2));
  };
}

std::vector<torch::Tensor> gradients_of(const Sequence& model) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, parameter] : model.named_parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
  }
  return result;
}

std::vector<torch::Tensor> state_of(const Trainer& trainer) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : trainer.state_dict()) result.push_back(tensor.detach().clone());
  return result;
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
      for (const auto recompute :
           {RecomputeMode::kNone, RecomputeMode::kAll, RecomputeMode::kExceptLast}) {
        SCOPED_TRACE(testing::Message() << "K=" << ranks << " M=" << micro_batches << " rows="
                                        << rows << " recompute=" << static_cast<int>(recompute));
        const Batch batch = make_batch(rows, 0, f);
        const Sequence reference = make_model(f);
        const int parts = sees_micro_batches ? std::min(rows, micro_batches) : 1;
        const double expected_loss = plain_gradients(reference, loss, batch, parts, 0);
        Strategy strategy;
        strategy.ranks = ranks;
        strategy.micro_batches = micro_batches;
        strategy.schedule = GetParam().schedule;
        strategy.recompute = recompute;
        strategy.threads_per_rank = 1;
        Trainer trainer(make_model(f), loss, sgd(), strategy);
        const StepResult result = trainer.gradients(batch);
        EXPECT_NEAR(result.loss, expected_loss, 1e-12);
        const auto expected = gradients_of(reference);
        const auto got = gradients_of(trainer.model());
        ASSERT_EQ(expected.size(), got.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::string name = reference.named_parameters()[i].first;
          ASSERT_EQ(expected[i].defined(), got[i].defined()) << name;
          if (!expected[i].defined()) continue;
          const double scale = expected[i].abs().max().item<double>() + 1e-12;
          EXPECT_LE((expected[i] - got[i]).abs().max().item<double>() / scale, 1e-10) << name;
        }
      }
    }
  }
}

TEST_P(Parity, WeightsAreBitIdenticalAfterFiveSteps) {
  const Features& f = GetParam().features;
  for (const bool use_adam : {false, true}) {
    std::vector<torch::Tensor> first;
    double first_loss = 0;
    for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
      for (const auto recompute :
           {RecomputeMode::kNone, RecomputeMode::kAll, RecomputeMode::kExceptLast}) {
        SCOPED_TRACE(testing::Message()
                     << "K=" << ranks << " recompute=" << static_cast<int>(recompute));
        Strategy strategy;
        strategy.ranks = ranks;
        strategy.micro_batches = 4;
        strategy.schedule =
            ranks == 1 && recompute == RecomputeMode::kNone ? "1f1b" : GetParam().schedule;
        strategy.recompute = recompute;
        strategy.threads_per_rank = 1;
        strategy.clip_norm = 0.5;
        Trainer trainer(make_model(f), cross_entropy(), use_adam ? adam() : sgd(), strategy);
        double loss = 0;
        for (int step = 0; step < 5; ++step) loss = trainer.step(make_batch(11, step, f)).loss;
        const auto state = state_of(trainer);
        if (first.empty()) {
          first = state;
          first_loss = loss;
          continue;
        }
        EXPECT_EQ(loss, first_loss);
        ASSERT_EQ(state.size(), first.size());
        for (std::size_t i = 0; i < state.size(); ++i) {
          EXPECT_TRUE(state[i].equal(first[i])) << trainer.state_dict()[i].first;
        }
      }
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.forward_only) continue;
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
