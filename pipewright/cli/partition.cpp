#include "pipewright/partition/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cost/profile.h"
#include "pipewright/plan/step_time_partition.h"

namespace pipewright::cli {
namespace {

struct Options {
  std::string costs;
  std::string stages;
  std::string objective = "bottleneck";
  std::string micro_batches;
  std::string schedule;
  bool json = false;
};

constexpr int kMostStages = 1 << 24;

std::vector<double> parse_costs(std::string text) {
  const bool from_file = text.starts_with('@');
  if (from_file) text = read_file(text.substr(1), "--costs");
  if (from_file && text.find('{') != std::string::npos) {
    std::vector<double> costs;
    for (const LayerCost& layer : parse_profile(text, "--costs").layers) {
      costs.push_back(layer.forward_seconds + layer.backward_seconds);
    }
    return costs;
  }
  std::vector<double> costs;
  constexpr std::string_view kSeparators = ", \t\r\n";
  std::size_t start = text.find_first_not_of(kSeparators);
  while (start != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, start), text.size());
    costs.push_back(parse_non_negative(std::string_view(text).substr(start, end - start),
                                       fmt::format("--costs: layer {}", costs.size())));
    start = text.find_first_not_of(kSeparators, end);
  }
  return costs;
}

void check_options(const Options& options) {
  if (options.objective != "bottleneck" && options.objective != "step-time") {
    throw InvalidArgument(
        "partition",
        fmt::format("'{}' is no objective; there are bottleneck, step-time", options.objective));
  }
  const bool step_time = options.objective == "step-time";
  if (step_time && options.micro_batches.empty()) {
    throw InvalidArgument("partition", "--objective step-time needs --micro-batches");
  }
  if (!step_time && !(options.micro_batches.empty() && options.schedule.empty())) {
    throw InvalidArgument(
        "partition",
        "--micro-batches and --schedule matter to --objective step-time alone; add it");
  }
}

void print(const Options& options, const Partition& partition, const StepTimePartition* step_time) {
  const bool exact = step_time == nullptr || step_time->exact;
  if (options.json) {
    nlohmann::ordered_json out = {{"sizes", partition.sizes}, {"bottleneck", partition.bottleneck}};
    if (step_time != nullptr) out["step_time"] = step_time->step_time;
    out["exact"] = exact;
    fmt::print("{}\n", out.dump());
    return;
  }
  fmt::print("layers by stage: {}\n", fmt::join(partition.sizes, ", "));
  fmt::print("heaviest stage:  {}\n", format_number(partition.bottleneck));
  if (step_time != nullptr)
    fmt::print("step time:       {}\n", format_number(step_time->step_time));
  fmt::print("{}\n",
             exact ? "No split is better." : "The best split found; too many to try them all.");
}

void run(const Options& options) {
  check_options(options);
  const std::vector<double> costs = parse_costs(options.costs);
  const int stages =
      static_cast<int>(parse_integer(options.stages, "--stages", -kMostStages, kMostStages));
  if (options.objective == "bottleneck") {
    print(options, partition_by_bottleneck(costs, stages), nullptr);
    return;
  }
  StepTimeSpec spec;
  spec.num_stages = stages;
  spec.micro_batches =
      static_cast<int>(parse_integer(options.micro_batches, "--micro-batches", 1, 1 << 20));
  if (!options.schedule.empty()) spec.schedule = options.schedule;
  const StepTimePartition best = partition_by_step_time(costs, spec);
  print(options, best.partition, &best);
}

}  // namespace

void add_partition(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("partition", "Split layers into stages, with the best split found");
  command
      ->add_option(
          "--costs", options->costs,
          "Costs of the layers: 1,2,3 or @FILE (numbers, or a profile whose forward and backward "
          "times are taken)")
      ->required();
  command->add_option("--stages", options->stages, "How many stages")->required();
  command->add_option(
      "--objective", options->objective,
      "bottleneck: the lightest heaviest stage (default); step-time: the least simulated step "
      "time of --schedule with --micro-batches, backward twice forward");
  command->add_option("--micro-batches", options->micro_batches,
                      "For step-time: how many micro-batches");
  command->add_option("--schedule", options->schedule,
                      "For step-time: the schedule (default 1f1b)");
  command->add_flag("--json", options->json,
                    "Print one JSON object: sizes, bottleneck, step_time, exact");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
