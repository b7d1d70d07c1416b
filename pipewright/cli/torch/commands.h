#pragma once

#include <CLI/CLI.hpp>

namespace pipewright::cli {

// As those of cli/commands.h, for pipewright-engine.
void add_train(CLI::App& program);
void add_verify(CLI::App& program);
void add_plan_config(CLI::App& program);
void add_models(CLI::App& program);

}  // namespace pipewright::cli
