#include "pipewright/run/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "pipewright/cli/commands.h"
#include "pipewright/cli/terminal.h"
#include "pipewright/run/files.h"

namespace pipewright::cli {
namespace {

struct Options {
  std::string run;
  std::string html;
  bool json = false;
};

void run(const Options& options) {
  const RunReport report = make_report(read_run(options.run));
  if (!options.html.empty()) replace_file(options.html, to_html(report));
  std::string text;
  if (options.json) {
    text = to_json(report) + "\n";
  } else {
    text = to_text(report, standard_output().width);
    if (!options.html.empty()) text += fmt::format("\nThe page: {}\n", options.html);
  }
  std::fflush(stdout);
  write_all(fileno(stdout), text, "standard output");
}

}  // namespace

void add_report(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "report", "Where the time and the memory of a run went, and what would be faster");
  command->add_option("run", options->run, "The run's folder, such as runs/20261115-180027")
      ->required()
      ->type_name("RUN");
  command->add_option("--html", options->html, "Write one self-contained page to this file");
  command->add_flag(
      "--json", options->json,
      "Print one JSON object: run, run_dir, state, steps, final_loss, validation, "
      "samples_per_second, step_seconds, bubble_fraction, predicted_bubble_fraction, "
      "peak_bytes, predicted_peak_bytes, breakdown, stages, ranks, advice, notes, ...");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
