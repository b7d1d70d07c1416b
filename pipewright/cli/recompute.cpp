#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "pipewright/base/file.h"
#include "pipewright/base/units.h"
#include "pipewright/cli/commands.h"
#include "pipewright/recompute/optimal.h"

namespace pipewright::cli {
namespace {

struct Options {
  std::string chain;
  std::string budget;
  bool json = false;
};

void print_json(const RecomputePlan& plan) {
  nlohmann::ordered_json out = {{"feasible", plan.feasible}};
  out["time"] = plan.feasible ? nlohmann::ordered_json(plan.cost.time) : nullptr;
  out["peak_bytes"] = plan.feasible ? nlohmann::ordered_json(plan.cost.peak_bytes) : nullptr;
  out["least_budget_bytes"] = plan.least_budget_bytes;
  out["exact"] = plan.exact;
  out["unit_bytes"] = plan.unit_bytes;
  auto operations = nlohmann::ordered_json::array();
  for (const Operation& operation : plan.operations)
    operations.push_back({{"op", op_name(operation.op)}, {"layer", operation.layer}});
  out["operations"] = std::move(operations);
  fmt::print("{}\n", out.dump());
}

/// Runs of the same operation on one line: `forward_save 3-7`.
void print_operations(const std::vector<Operation>& operations) {
  for (std::size_t i = 0; i < operations.size();) {
    const Operation& first = operations[i];
    const std::size_t end = run_end(operations, i);
    const int last = operations[end - 1].layer;
    fmt::print(
        "  {:<16} {}\n", op_name(first.op),
        last == first.layer ? fmt::format("{}", last) : fmt::format("{}-{}", first.layer, last));
    i = end;
  }
}

void print_text(const Chain& chain, const RecomputePlan& plan) {
  double once = 0;
  for (const ChainLayer& layer : chain.layers) once += layer.forward + layer.backward;
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  fmt::print("time:         {} ({} when everything is saved)\n", format_number(plan.cost.time),
             format_number(once));
  fmt::print("peak:         {}\n", bytes(plan.cost.peak_bytes));
  fmt::print("least budget: {}\n", bytes(plan.least_budget_bytes));
  if (!plan.exact)
    fmt::print("Sizes were rounded up to {}: a faster plan may exist.\n", bytes(plan.unit_bytes));
  fmt::print("operations, by layer:\n");
  print_operations(plan.operations);
}

void run(const Options& options) {
  const Chain chain = parse_chain(read_file(options.chain, "--chain"), "--chain");
  const std::int64_t budget = parse_bytes(options.budget, "--budget");
  const RecomputePlan plan = optimal_recompute(chain, budget);
  if (options.json) print_json(plan);
  if (!plan.feasible) {
    if (!options.json) {
      fmt::print(stderr,
                 "pipewright: [recompute] a budget of {} bytes is not enough; use {} or more\n",
                 budget, plan.least_budget_bytes);
    }
    throw Exit{1};
  }
  if (!options.json) print_text(chain, plan);
}

}  // namespace

void add_recompute(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "recompute", "The fastest way to run a chain forward and backward within a memory budget");
  command
      ->add_option("--chain", options->chain,
                   "JSON file: {\"layers\": [{\"forward\", \"backward\", \"output_bytes\", "
                   "\"saved_bytes\", \"forward_temp_bytes\", \"backward_temp_bytes\"}]}")
      ->required();
  command->add_option("--budget", options->budget, "Bytes, e.g. 512MiB")->required();
  command->add_flag("--json", options->json,
                    "Print one JSON object: feasible, time, peak_bytes, least_budget_bytes, exact, "
                    "unit_bytes, operations");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
