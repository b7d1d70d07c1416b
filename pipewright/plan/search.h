#pragma once

#include <span>

#include "pipewright/cost/profile.h"
#include "pipewright/plan/plan.h"
#include "pipewright/trace/timeline.h"

namespace pipewright {

/// What there is to train with.
struct PlanRequest {
  int ranks = 1;
  std::int64_t global_batch = 1;
  std::int64_t memory_bytes = 0;            // a rank; 0: without end
  double link_bandwidth = 0;                // bytes a second between two ranks; 0: no time
  double link_latency = 0;                  // seconds
  std::vector<std::string> schedules = {};  // to choose from; empty: all that train, but
  bool asynchronous = false;                // those whose updates are late only where this is set
  int most_chunks = 4;                      // stages a rank, for schedules that take several
  int most_micro_batches = 512;
  bool offload =
      false;  // what is kept may go to the host's memory, where the profile knows how fast
};

struct RejectedPlan {
  Plan plan;  // without predictions
  std::string reason;
};

struct PlanSearch {
  std::vector<Plan> plans;  // fastest first
  std::vector<RejectedPlan> rejected;
};

/// Looks for the plans with the most samples a second that fit: every schedule with every number of
/// chunks, every number of micro-batches up to most_micro_batches that makes them smaller, and for
/// each of these the split of layers and the recompute plan (see BudgetPlanner) that make the
/// simulated step shortest. All splits are tried where they are few; else those one layer away from
/// the best so far, again and again, starting from the lightest bottleneck in time and in bytes.
///
/// Of asynchronous schedules a step is a mini-batch in the steady state, and the memory has all
/// versions of the weights in it. They are tried only where the request names or allows them: their
/// gradients come late (Plan::delay), which no plan should bring about unasked.
///
/// `profiles`: of one model, for one or several sizes of micro-batch: see scale_profile().
PlanSearch search_plans(std::span<const Profile> profiles, const PlanRequest& request);

/// What a plan costs on a model of these profiles: its predictions are filled in.
Plan predict(std::span<const Profile> profiles, Plan plan, double link_bandwidth = 0,
             double link_latency = 0);

/// The step that is predicted so.
Timeline predicted_timeline(std::span<const Profile> profiles, const Plan& plan);

}  // namespace pipewright
