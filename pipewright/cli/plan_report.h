#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "pipewright/plan/search.h"

namespace pipewright::cli {

/// What `pipewright plan` is asked, by profiles or by a config.
struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> profiles;
  std::string memory;
  std::string ranks;         // empty: 1, or the config's
  std::string global_batch;  // empty: the config's
  std::string link_bandwidth;
  std::string link_latency;
  std::vector<std::string> schedules;
  std::string top = "10";
  std::string output;
  std::string save_profiles;
  bool offload = false;
  bool asynchronous = false;
  bool json = false;
};

/// Both programs take the same options: the one without LibTorch hands a config on.
void add_plan_options(CLI::App* command, PlanOptions* options);

/// `ranks` and `global_batch` are where the options do not say.
PlanRequest plan_request(const PlanOptions& options, std::int64_t ranks, std::int64_t global_batch);

/// Prints what was found and writes the best plan. Throws Exit{1} where nothing fits.
void show_plans(const PlanSearch& found, const PlanOptions& options);

}  // namespace pipewright::cli
