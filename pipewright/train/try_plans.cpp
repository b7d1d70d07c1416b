#include "pipewright/train/try_plans.h"

#include <algorithm>

#include "pipewright/base/error.h"
#include "pipewright/train/trainer.h"

namespace pipewright {
namespace {

bool recomputes_alike(const Plan& a, const Plan& b) {
  return a.recompute() == b.recompute() && a.offloads() == b.offloads();
}

bool nearly_the_same(const Plan& a, const Plan& b) {
  const double ratio = static_cast<double>(a.micro_batch_size) / b.micro_batch_size;
  return a.schedule == b.schedule && a.chunks == b.chunks && recomputes_alike(a, b) &&
         ratio > 0.9 && ratio < 1.1;
}

void run(Trainer* trainer, const Batch& batch, const TryOptions& options, TriedPlan* tried) {
  for (int i = 0; i < options.warm_up; ++i) trainer->step(batch);
  std::vector<double> seconds;
  for (int i = 0; i < options.steps; ++i) {
    const StepResult result = trainer->step(batch);
    seconds.push_back(result.seconds);
    tried->peak_bytes.resize(result.peak_bytes.size());
    for (std::size_t rank = 0; rank < result.peak_bytes.size(); ++rank)
      tried->peak_bytes[rank] = std::max(tried->peak_bytes[rank], result.peak_bytes[rank]);
  }
  std::sort(seconds.begin(), seconds.end());
  tried->step_seconds = seconds[seconds.size() / 2];
}

}  // namespace

std::vector<Plan> plans_to_try(const std::vector<Plan>& plans, std::size_t count) {
  std::vector<Plan> chosen;
  for (const Plan& plan : plans) {
    if (chosen.size() == count) break;
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](const Plan& one) { return nearly_the_same(plan, one); });
    if (!known) chosen.push_back(plan);
  }
  if (chosen.size() < count || count < 3) return chosen;
  const auto other = std::find_if(plans.begin(), plans.end(), [&](const Plan& plan) {
    return std::none_of(chosen.begin(), chosen.end(),
                        [&](const Plan& one) { return recomputes_alike(plan, one); });
  });
  if (other != plans.end()) chosen.back() = *other;
  return chosen;
}

std::vector<TriedPlan> try_plans(
    const std::vector<Plan>& plans,
    const std::function<std::unique_ptr<Trainer>(const Plan&)>& trainer, const Batch& batch,
    const TryOptions& options) {
  if (options.steps < 1)
    throw InvalidArgument("steps", "at least one step is needed to time a plan");
  std::vector<TriedPlan> tried;
  for (const Plan& plan : plans_to_try(plans, options.plans)) {
    TriedPlan one;
    one.plan = plan;
    try {
      run(trainer(plan).get(), batch, options, &one);
    } catch (const OutOfMemory& error) {
      one.failure = error.what();
    }
    tried.push_back(std::move(one));
  }
  std::stable_sort(tried.begin(), tried.end(), [](const TriedPlan& a, const TriedPlan& b) {
    if (a.failure.empty() != b.failure.empty()) return a.failure.empty();
    return a.step_seconds < b.step_seconds;
  });
  return tried;
}

}  // namespace pipewright
