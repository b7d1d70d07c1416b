#include "pipewright/plan/plan.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "pipewright/app/measure.h"
#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/cli/plan_report.h"
#include "pipewright/cli/torch/commands.h"
#include "pipewright/config/read.h"

namespace pipewright::cli {
namespace {

void save(const std::vector<Profile>& profiles, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    throw InvalidArgument("--save-profiles",
                          fmt::format("cannot make '{}': {}", folder, failed.message()));
  for (const Profile& profile : profiles) {
    write_file(fmt::format("{}/size-{}.json", folder, profile.micro_batch_size), to_json(profile),
               "--save-profiles");
  }
}

void run(const PlanOptions& options) {
  config::Places places;
  const config::Config config =
      config::read(options.config, options.overrides, catalog::known(), &places);
  if (config.auto_micro_batch.num != 1) {
    throw places.located(config::KeyError(
        "auto_micro_batch.num",
        "a plan is of a pipeline, without copies beside each other; leave out [auto_micro_batch] "
        "(num = \"auto\" of it measures by itself)"));
  }
  const std::int64_t replicas = config.data_parallel.replicas;
  const PlanRequest request =
      plan_request(options, config.pipeline.ranks, (config.data.batch + replicas - 1) / replicas);
  try {
    const PlannedModel planned = app::plan_config(config, request);
    if (!options.save_profiles.empty()) save(planned.profiles, options.save_profiles);
    show_plans(planned.search, options);
  } catch (const config::KeyError& error) {
    throw places.located(error);
  }
  if (!options.output.empty() && !options.json) {
    fmt::print("Train so: pipewright train {} --plan {}\n", options.config, options.output);
  }
}

}  // namespace

void add_plan_config(CLI::App& program) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      program.add_subcommand("plan", "Measure a config's model and choose how to train it");
  add_plan_options(command, options.get());
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
