#include "pipewright/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "pipewright/base/error.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cli/engine.h"
#include "pipewright/cli/plan_report.h"

namespace pipewright::cli {
namespace {

std::vector<Profile> load_profiles(const PlanOptions& options) {
  std::vector<Profile> profiles;
  for (const std::string& path : options.profiles) profiles.push_back(load_profile(path));
  std::stable_sort(profiles.begin(), profiles.end(), [](const Profile& a, const Profile& b) {
    return a.micro_batch_size < b.micro_batch_size;
  });
  return profiles;
}

void run(const PlanOptions& options, const std::vector<std::string>& words) {
  if (!options.config.empty()) {
    if (!options.profiles.empty())
      throw InvalidArgument("plan", "a config is measured; leave --profile out, or the config");
    become_engine(words);
  }
  if (options.profiles.empty())
    throw InvalidArgument("plan", "give a config, whose model is measured, or --profile");
  if (options.global_batch.empty())
    throw InvalidArgument("--global-batch", "not given; how many samples has a step?");
  if (!options.overrides.empty() || !options.save_profiles.empty())
    throw InvalidArgument("plan", "--set and --save-profiles are for a config");
  const PlanRequest request = plan_request(options, 1, 1);
  const std::vector<Profile> profiles = load_profiles(options);
  if (profiles.size() == 1 && !options.json) {
    fmt::print(stderr,
               "pipewright: [plan] one profile, of micro-batches of {}: other sizes are taken in "
               "proportion; with profiles of two or more sizes they are predicted better\n",
               profiles[0].micro_batch_size);
  }
  show_plans(search_plans(profiles, request), options);
}

}  // namespace

void add_plan(CLI::App& program, std::vector<std::string> words) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = program.add_subcommand(
      "plan", "Choose micro-batches, schedule, stages and recompute for the most samples a second");
  add_plan_options(command, options.get());
  command->callback([options, words = std::move(words)] { run(*options, words); });
}

}  // namespace pipewright::cli
