#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pipewright::cli {

// Each adds its subcommand to the program. A subcommand prints what it has to say and throws for
// the rest; main() turns what is thrown into one line and an exit status.
void add_simulate(CLI::App& program);
void add_partition(CLI::App& program);
void add_recompute(CLI::App& program);
/// `words`: the command line, to hand on to pipewright-engine.
void add_plan(CLI::App& program, std::vector<std::string> words);
void add_launch(CLI::App& program);
void add_report(CLI::App& program);
void add_init(CLI::App& program);

/// Thrown where all is said and only the exit status is left.
struct Exit {
  int status = 0;
};

}  // namespace pipewright::cli
