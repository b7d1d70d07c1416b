#include "pipewright/train/plan_model.h"

#include <gtest/gtest.h>

#include "pipewright/base/error.h"
#include "pipewright/optim/adam.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

Sequence chain() {
  Sequence model;
  for (int i = 0; i < 6; ++i) {
    model.add("fc" + std::to_string(i), torch::nn::Linear(32, 32));
    model.add("tanh" + std::to_string(i), torch::nn::Tanh());
  }
  return model;
}

Batch rows(std::int64_t count) {
  return {.inputs = {torch::randn({count, 32})}, .targets = {torch::randn({count, 32})}};
}

PlannedModel plan(const PlanRequest& request, std::int64_t sample) {
  MeasureOptions options;
  options.optimizer = adam(torch::optim::AdamOptions(1e-3));
  options.repeats = 1;
  options.warm_up = 1;
  return plan_model(chain(), mean_squared_error(), rows(sample), request, options);
}

TEST(PlanModel, MeasuresTheSizeOfTheBestPlan) {
  PlanRequest request;
  request.global_batch = 96;
  request.memory_bytes = 200 * 1024;
  const PlannedModel planned = plan(request, 96);
  ASSERT_FALSE(planned.search.plans.empty());
  std::vector<int> sizes;
  for (const Profile& profile : planned.profiles) sizes.push_back(profile.micro_batch_size);
  EXPECT_TRUE(std::is_sorted(sizes.begin(), sizes.end()));
  for (const int size : {1, 4, 16, 64}) {
    EXPECT_NE(std::find(sizes.begin(), sizes.end(), size), sizes.end()) << size;
  }
  const int best = planned.search.plans[0].micro_batch_size;
  EXPECT_NE(std::find(sizes.begin(), sizes.end(), best), sizes.end()) << best;
}

/// Who tries plans tries one of another kind too (try_plans.h): that one must be predicted as well.
TEST(PlanModel, MeasuresTheSizeOfTheBestPlanOfEveryKindOfRecompute) {
  PlanRequest request;
  request.global_batch = 12;  // so few sizes that all could be measured: times change nothing
  for (const Plan& plan : plan(request, 12).search.plans)
    request.memory_bytes = std::max(request.memory_bytes, plan.peak_bytes[0] - 1);
  const PlannedModel planned = plan(request, 12);  // the largest must recompute, smaller need not
  std::set<int> sizes;
  for (const Profile& profile : planned.profiles) sizes.insert(profile.micro_batch_size);
  std::map<std::string, int> best;  // of a kind: its size
  for (const Plan& plan : planned.search.plans)
    best.try_emplace(plan.recompute(), plan.micro_batch_size);
  EXPECT_EQ(best.size(), 2U) << "the budget leaves no choice";
  for (const auto& [kind, size] : best) EXPECT_TRUE(sizes.contains(size)) << kind << " " << size;
}

TEST(PlanModel, PlansKeepTheirBudget) {
  for (const int ranks : {1, 2}) {
    PlanRequest request;
    request.ranks = ranks;
    request.global_batch = 64;
    request.memory_bytes = 256 * 1024 / ranks;
    const PlannedModel planned = plan(request, 64);
    ASSERT_FALSE(planned.search.plans.empty());
    const Plan& best = planned.search.plans[0];
    Trainer trainer(chain(), mean_squared_error(), adam(torch::optim::AdamOptions(1e-3)),
                    strategy_of(best));
    StepResult result;
    for (int i = 0; i < 2; ++i) result = trainer.step(rows(64));
    for (std::size_t rank = 0; rank < result.peak_bytes.size(); ++rank) {
      EXPECT_LE(result.peak_bytes[rank], best.peak_bytes[rank]);
      EXPECT_LE(result.peak_bytes[rank], request.memory_bytes);
    }
  }
}

TEST(PlanModel, ASampleSmallerThanTheBatchBoundsWhatIsMeasured) {
  PlanRequest request;
  request.global_batch = 64;
  const PlannedModel planned = plan(request, 8);
  for (const Profile& profile : planned.profiles) EXPECT_LE(profile.micro_batch_size, 8);
  ASSERT_FALSE(planned.search.plans.empty());
}

TEST(PlanModel, SharedInputsStayWhole) {
  Sequence model;
  const auto scale = [](const Tensors& x) -> Tensors {
    EXPECT_EQ(x[1].size(0), 3);
    return {x[0] * x[1].sum()};
  };
  model.add_layer("scale", scale, nullptr);
  model.add("fc", torch::nn::Linear(8, 8));
  Batch batch{.inputs = {torch::randn({16, 8}), torch::ones({3})},
              .targets = {torch::randn({16, 8})},
              .shared_inputs = {0, 1}};
  PlanRequest request;
  request.global_batch = 16;
  EXPECT_FALSE(plan_model(model, mean_squared_error(), batch, request).search.plans.empty());
}

TEST(PlanModel, RefusesABatchWithoutRows) {
  EXPECT_THROW(plan_model(chain(), mean_squared_error(), Batch{}, {}), InvalidArgument);
}

}  // namespace
}  // namespace pipewright
