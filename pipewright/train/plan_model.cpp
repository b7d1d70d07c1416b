#include "pipewright/train/plan_model.h"

#include <algorithm>
#include <set>

#include "pipewright/torch/out_of_memory.h"

namespace pipewright {
namespace {

/// So often the sizes of the best plans are measured, so many a time.
constexpr int kMostRounds = 4;
constexpr std::size_t kSizesARound = 3;

class Planner {
 public:
  Planner(const Sequence& model, const Loss& loss, const Batch& batch, const PlanRequest& request,
          const MeasureOptions& options)
      : model_(model),
        loss_(loss),
        batch_(batch),
        request_(request),
        options_(options),
        most_(std::min(rows_of(batch), request.global_batch)) {}

  PlannedModel plan() {
    for (std::int64_t rows = 1; rows <= most_; rows *= 4) {
      if (!measure(rows)) break;
    }
    result_.search = search_plans(result_.profiles, request_);
    for (int round = 0; round < kMostRounds && measure_best(); ++round)
      result_.search = search_plans(result_.profiles, request_);
    return std::move(result_);
  }

 private:
  /// False where memory does not reach; what is larger is not tried any more then.
  bool measure(std::int64_t rows) {
    const auto first_rows = [&](const Tensors& tensors, bool inputs) {
      Tensors part;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const bool shared =
            inputs && i < batch_.shared_inputs.size() && batch_.shared_inputs[i] != 0;
        part.push_back(shared ? tensors[i] : tensors[i].slice(0, 0, rows));
      }
      return part;
    };
    measured_.insert(rows);
    try {
      result_.profiles.push_back(measure_profile(model_, loss_, first_rows(batch_.inputs, true),
                                                 first_rows(batch_.targets, false), options_));
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error) || result_.profiles.empty()) throw;
      most_ = rows - 1;
      return false;
    }
    std::sort(
        result_.profiles.begin(), result_.profiles.end(),
        [](const Profile& a, const Profile& b) { return a.micro_batch_size < b.micro_batch_size; });
    return true;
  }

  /// The best plan of every kind of recompute, and where the best of all is not measured the next
  /// best. False where there is nothing to measure.
  bool measure_best() {
    const auto& plans = result_.search.plans;
    std::vector<std::int64_t> sizes;
    const auto add = [&](const Plan& plan) {
      if (may_measure(plan.micro_batch_size) &&
          std::find(sizes.begin(), sizes.end(), plan.micro_batch_size) == sizes.end())
        sizes.push_back(plan.micro_batch_size);
    };
    std::set<std::pair<std::string, bool>> kinds;
    for (const Plan& plan : plans) {
      if (kinds.emplace(plan.recompute(), plan.offloads()).second) add(plan);
    }
    if (!plans.empty() && may_measure(plans[0].micro_batch_size)) {
      for (const Plan& plan : plans) {
        if (sizes.size() < kSizesARound) add(plan);
      }
    }
    for (const std::int64_t rows : sizes) {
      if (rows <= most_) measure(rows);
    }
    return !sizes.empty();
  }

  bool may_measure(std::int64_t rows) const { return rows <= most_ && !measured_.contains(rows); }

  const Sequence& model_;
  const Loss& loss_;
  const Batch& batch_;
  const PlanRequest& request_;
  const MeasureOptions& options_;
  std::int64_t most_;  // rows that can be measured
  std::set<std::int64_t> measured_;
  PlannedModel result_;
};

}  // namespace

PlannedModel plan_model(const Sequence& model, const Loss& loss, const Batch& batch,
                        const PlanRequest& request, const MeasureOptions& options) {
  return Planner(model, loss, batch, request, options).plan();
}

}  // namespace pipewright
