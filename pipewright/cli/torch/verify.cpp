#include "pipewright/app/verify.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/units.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cli/torch/commands.h"
#include "pipewright/config/read.h"
#include "pipewright/run/files.h"
#include "pipewright/schedule/schedule.h"

namespace pipewright::cli {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::string tolerance;
  bool full = false;
  bool json = false;
};

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json difference_json(const app::VerifiedCase& one) {
  const app::Difference& difference = one.gradients ? *one.gradients : *one.bits;
  return {{"case", one.name()},
          {"what", difference.what},
          {"layer", difference.layer},
          {"tensor", difference.tensor},
          {"relative_difference", number(difference.relative)},
          {"cause", difference.cause}};
}

void print_json(const app::Verification& result) {
  auto cases = nlohmann::ordered_json::array();
  for (const app::VerifiedCase& one : result.cases) {
    cases.push_back({{"schedule", one.schedule},
                     {"ranks", one.ranks},
                     {"chunks", one.chunks},
                     {"recompute", one.recompute},
                     {"passed", one.passed()},
                     {"relative_difference", number(one.gradient_difference)},
                     {"bitwise", one.bitwise}});
    if (!one.passed()) cases.back()["first_difference"] = difference_json(one);
  }
  nlohmann::ordered_json out = {
      {"passed", result.passed()},
      {"max_relative_difference", number(result.max_relative_difference())},
      {"bitwise", result.bitwise()},
      {"first_difference", nullptr},
      {"dtype", result.dtype},
      {"tolerance", result.tolerance},
      {"reference", result.reference},
      {"micro_batches", result.micro_batches},
      {"steps", result.steps},
      {"notes", result.notes},
      {"cases", cases}};
  if (const auto* failed = result.first_failed())
    out["first_difference"] = difference_json(*failed);
  write_all(fileno(stdout), out.dump() + "\n", "standard output");
}

void print_case(const app::VerifiedCase& one) {
  fmt::print("{:<18}{:>6}{:>8}  {:<12}{:>11.1e}  {:<6} {}\n", one.schedule, one.ranks, one.chunks,
             one.recompute, one.gradient_difference, one.bitwise ? "same" : "other",
             one.passed() ? "" : "DIFFERS");
  std::fflush(stdout);
}

void print_end(const app::Verification& result) {
  fmt::print("\ngradients: in {}, against {}; the most that is allowed is {:.0e}\n", result.dtype,
             result.reference, result.tolerance);
  fmt::print(
      "bits: loss, weights and buffers after {} steps in {} micro-batches, against those of "
      "the first line\n",
      result.steps, result.micro_batches);
  for (const std::string& note : result.notes) fmt::print("note: {}\n", note);
  const auto* failed = result.first_failed();
  if (failed == nullptr) {
    fmt::print("\nall {} cases passed: the largest difference of a gradient is {:.1e}{}\n",
               result.cases.size(), result.max_relative_difference(),
               result.bitwise() ? ", and all bits are the same" : "");
    return;
  }
  fmt::print("\n{}:\n", failed->name());
  if (failed->gradients) fmt::print("  {}\n", failed->gradients->words());
  if (failed->bits) fmt::print("  after training {}\n", failed->bits->words());
}

void run(const Options& options) {
  app::VerifyOptions verify;
  verify.full = options.full;
  if (!options.tolerance.empty())
    verify.tolerance = parse_non_negative(options.tolerance, "--tolerance");
  config::Places places;
  const config::Config config =
      config::read(options.config, options.overrides, catalog::known(), &places);
  if (config.auto_micro_batch.num != 1)
    fmt::print(stderr, "[auto_micro_batch] is left out: what is verified are pipelines\n");
  if (find_schedule(config.pipeline.schedule).asynchronous) {
    fmt::print(stderr,
               "schedule \"{}\" delays its updates: the config's own way is compared with 1f1b's\n",
               config.pipeline.schedule);
  }
  if (!options.json)
    fmt::print("{:<18}{:>6}{:>8}  {:<12}{:>11}  {:<6}\n", "schedule", "ranks", "chunks",
               "recompute", "gradients", "bits");
  try {
    const app::Verification result =
        app::verify_config(config, verify, options.json ? app::OnCase() : print_case,
                           [](const std::string& note) { fmt::print(stderr, "{}\n", note); });
    if (options.json) {
      print_json(result);
    } else {
      print_end(result);
    }
    if (!result.passed()) throw Exit{1};
  } catch (const config::KeyError& error) {
    throw places.located(error);
  }
}

}  // namespace

void add_verify(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "verify", "Check a config's training against plain single-device training");
  command->add_option("config", options->config, "The config, TOML: see docs/configuration.md")
      ->required();
  command->add_option("--set", options->overrides, "section.key=value, instead of the config's");
  command->add_option("--tolerance", options->tolerance,
                      "The largest relative difference of a gradient in float64 (default 1e-10)");
  command->add_flag("--full", options->full,
                    "Every recompute mode with every schedule and number of ranks");
  command->add_flag("--json", options->json,
                    "Print one JSON object: passed, cases, max_relative_difference, bitwise, "
                    "first_difference and more");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
