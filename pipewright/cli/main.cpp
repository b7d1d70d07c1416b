#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>

#include "pipewright/base/error.h"
#include "pipewright/cli/commands.h"

namespace pipewright::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

int complain(int status, std::string_view message) {
  fmt::print(stderr, "pipewright: {}\n", message);
  return status;
}

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

int run(int argc, char** argv) {
  CLI::App program("Pipeline-parallel training on LibTorch: exact, planned, explained by pictures.",
                   "pipewright");
  program.set_version_flag("--version", "pipewright " PIPEWRIGHT_VERSION);
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error&) { return std::string(); });
  add_simulate(program);
  add_partition(program);
  add_recompute(program);
  add_plan(program);
  check_command(program, argc, argv);
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    return complain(kUsage, fmt::format("{}; see pipewright --help", error.what()));
  }
}

}  // namespace
}  // namespace pipewright::cli

int main(int argc, char** argv) {
  using namespace pipewright;
  try {
    return cli::run(argc, argv);
  } catch (const cli::Exit& exit) {
    return exit.status;
  } catch (const InvalidArgument& error) {
    return cli::complain(cli::kUsage, error.what());
  } catch (const ScheduleError& error) {
    return cli::complain(cli::kUsage, error.what());
  } catch (const std::bad_alloc&) {
    return cli::complain(cli::kFailure,
                         "[memory] not enough memory; ask for fewer ranks or micro-batches");
  } catch (const std::exception& error) {
    return cli::complain(cli::kFailure, error.what());
  }
}
