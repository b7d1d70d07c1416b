#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "pipewright/app/run.h"
#include "pipewright/base/units.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/cli/commands.h"
#include "pipewright/cli/terminal.h"
#include "pipewright/cli/torch/commands.h"
#include "pipewright/config/read.h"
#include "pipewright/run/files.h"
#include "pipewright/run/progress.h"
#include "pipewright/transport/environment.h"

namespace pipewright::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

/// The first Ctrl-C has the run save and end; a second one ends it at once. A reader of the output
/// that goes away ends nothing: the run's folder has everything.
void heed_signals() {
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::string plan;
  bool resume = false;
  bool json = false;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What people see of a run: of several processes, of the first alone.
class Display {
 public:
  /// With --json standard output is for the result alone.
  explicit Display(const Options& options)
      : out_(options.json ? stderr : stdout), shows_(read_environment().rank == 0) {}

  void begin(std::int64_t done, std::int64_t all) {
    ProgressOptions options;
    options.first_step = done;
    options.num_steps = all;
    options.terminal = isatty(fileno(out_)) != 0;
    if (shows_ && all > done)
      progress_.emplace(
          options, seconds_now, [] { return standard_output().width; },
          [this](std::string_view text) { write(text); });
  }

  void step(const StepMetrics& metrics) {
    if (progress_)
      progress_->step(metrics.step,
                      {metrics.loss, metrics.samples_per_second, metrics.bubble, metrics.auc});
  }

  void note(const std::string& line) {
    if (progress_) return progress_->note(line);
    if (shows_) write(line + "\n");
  }

  void end(const app::Ending& ending) {
    if (progress_) progress_->finish();
    if (!shows_ || !ending.final_loss) return;
    std::string text = fmt::format(
        "{} after step {}: loss {:.4f}, {:.0f} samples/s, bubble {:.1f} % (predicted {:.1f} %)\n",
        ending.stopped ? "stopped" : "finished", ending.steps, *ending.final_loss,
        ending.samples_per_second, 100 * ending.bubble_fraction,
        100 * ending.predicted_bubble_fraction);
    for (std::size_t rank = 0; rank < ending.peak_bytes.size(); ++rank) {
      text += fmt::format("{}rank {}: {}", rank == 0 ? "peak memory: " : ", ", rank,
                          format_bytes(static_cast<double>(ending.peak_bytes[rank])));
    }
    write(fmt::format("{}\nthe run: {}\n", text, ending.run_dir));
  }

  bool shows() const { return shows_; }

 private:
  /// A reader that is gone is no failure.
  void write(std::string_view text) const {
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
  }

  std::FILE* out_;
  bool shows_;
  std::optional<Progress> progress_;
};

void print_json(const app::Ending& ending) {
  nlohmann::json json = {{"steps", ending.steps},
                         {"final_loss", nullptr},
                         {"samples_per_second", ending.samples_per_second},
                         {"step_seconds", ending.step_seconds},
                         {"bubble_fraction", ending.bubble_fraction},
                         {"predicted_bubble_fraction", ending.predicted_bubble_fraction},
                         {"peak_bytes", ending.peak_bytes},
                         {"weights_sha256", nullptr},
                         {"run_dir", ending.run_dir}};
  if (ending.final_loss) json["final_loss"] = *ending.final_loss;
  if (ending.weights_sha256) json["weights_sha256"] = *ending.weights_sha256;
  write_all(fileno(stdout), json.dump() + "\n", "standard output");
}

void run(const Options& options) {
  config::Places places;
  const config::Config config =
      config::read(options.config, options.overrides, catalog::known(), &places);
  std::optional<Plan> plan;
  if (!options.plan.empty()) plan = load_plan(options.plan);
  Display display(options);
  heed_signals();
  const app::Hooks hooks = {
      .begin = [&](std::int64_t done, std::int64_t all) { display.begin(done, all); },
      .step = [&](const StepMetrics& metrics) { display.step(metrics); },
      .note = [&](const std::string& line) { display.note(line); },
      .interrupted = [] { return interrupted != 0; }};
  try {
    const app::Ending ending =
        app::train(config, config::run_folder(config, options.config), options.resume, hooks, plan);
    display.end(ending);
    if (options.json && display.shows()) print_json(ending);
  } catch (const config::KeyError& error) {
    throw places.located(error);
  }
}

}  // namespace

void add_train(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("train", "Train a model as a config file says");
  command->add_option("config", options->config, "The config, TOML: see docs/configuration.md")
      ->required();
  command->add_option("--set", options->overrides, "section.key=value, instead of the config's");
  command->add_option("--plan", options->plan,
                      "A plan of pipewright plan: takes the place of the config's pipeline and "
                      "recompute");
  command->add_flag("--resume", options->resume,
                    "Go on from the run's last checkpoint, if there is any");
  command->add_flag("--json", options->json,
                    "One JSON object on standard output, and nothing else");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
