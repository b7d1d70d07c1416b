#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "pipewright/base/error.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cli/engine.h"
#include "pipewright/cli/guarded.h"

namespace pipewright::cli {
namespace {

/// CLI11 answers a misspelt command or option with "a subcommand is required".
void check_command(const CLI::App& program, int argc, char** argv) {
  if (argc < 2) return;
  if (argv[1][0] == '-') {
    if (program.get_option_no_throw(argv[1]) != nullptr) return;
    throw InvalidArgument("command",
                          fmt::format("'{}' is no option; see pipewright --help", argv[1]));
  }
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  throw InvalidArgument(
      "command", fmt::format("'{}' is no command; there are {}", argv[1], fmt::join(names, ", ")));
}

/// What pipewright-engine does; it has the options.
constexpr std::array<std::pair<const char*, const char*>, 3> kEngineCommands = {
    {{"train", "Train a model as a config file says"},
     {"verify", "Check a config's training against plain single-device training"},
     {"models", "List the models and data sources that a config may name"}}};

bool is_engine_command(std::string_view word) {
  return std::any_of(std::begin(kEngineCommands), std::end(kEngineCommands),
                     [&](const auto& command) { return word == command.first; });
}

void print_version() {
  fmt::print("pipewright " PIPEWRIGHT_VERSION "\n");
  if (find_engine()) become_engine({"about"});
  fmt::print("built without LibTorch\n");
  throw Exit{0};
}

int run(int argc, char** argv) {
  CLI::App program("Pipeline-parallel training on LibTorch: exact, planned, explained by pictures.",
                   "pipewright");
  program.add_flag_callback("--version", print_version,
                            "Display version and what it was built with");
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error&) { return std::string(); });
  add_simulate(program);
  add_partition(program);
  add_recompute(program);
  add_plan(program, {argv + std::min(argc, 1), argv + argc});
  add_launch(program);
  add_report(program);
  add_init(program);
  for (const auto& [name, words] : kEngineCommands) program.add_subcommand(name, words);
  check_command(program, argc, argv);
  if (argc > 1 && is_engine_command(argv[1])) become_engine({argv + 1, argv + argc});
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    fmt::print(stderr, "pipewright: {}; see pipewright --help\n", error.what());
    return kUsage;
  }
}

}  // namespace
}  // namespace pipewright::cli

int main(int argc, char** argv) {
  return pipewright::cli::guarded([&] { return pipewright::cli::run(argc, argv); });
}
