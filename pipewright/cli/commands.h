#pragma once

#include <CLI/CLI.hpp>

namespace pipewright::cli {

// Each adds its subcommand to the program. A subcommand prints what it has to say and throws for
// the rest; main() turns what is thrown into one line and an exit status.
void add_simulate(CLI::App& program);
void add_partition(CLI::App& program);

}  // namespace pipewright::cli
