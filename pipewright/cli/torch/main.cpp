// pipewright-engine: the commands that need LibTorch. People call pipewright, which calls this.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>

#include "pipewright/cli/guarded.h"
#include "pipewright/cli/torch/commands.h"
#include "pipewright/memory/heap.h"
#include "pipewright/torch/blas.h"
#include "pipewright/train/grid.h"

namespace pipewright::cli {
namespace {

/// Two lines of `pipewright --version`.
void print_about() {
  fmt::print("LibTorch {}, CUDA devices: {}\ntransports: {}\n", TORCH_VERSION,
             torch::cuda::device_count(), fmt::join(transports(), ", "));
}

int run(int argc, char** argv) {
  CLI::App program("The part of pipewright that needs LibTorch; see pipewright --help.",
                   "pipewright");
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error&) { return std::string(); });
  program.add_subcommand("about", "What this was built with")->callback(print_about);
  add_train(program);
  add_verify(program);
  add_plan_config(program);
  add_models(program);
  try {
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help
    fmt::print(stderr, "pipewright: {}; see pipewright {} --help\n", error.what(),
               argc > 1 ? argv[1] : "");
    return kUsage;
  }
}

}  // namespace
}  // namespace pipewright::cli

int main(int argc, char** argv) {
  pipewright::use_fast_blas(argv);
  pipewright::keep_freed_memory();
  return pipewright::cli::guarded([&] { return pipewright::cli::run(argc, argv); });
}
