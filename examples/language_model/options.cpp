#include "options.h"

#include <CLI/CLI.hpp>

#include "pipewright/base/error.h"
#include "pipewright/transport/environment.h"

namespace {

void check_at_least_one(const char* name, int value) {
  if (value >= 1) return;
  throw pipewright::InvalidArgument(
      "options", std::string(name) + " is " + std::to_string(value) + "; use 1 or more");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options o;
  bool quick = false;
  CLI::App app(
      "Trains a small GPT on made text over a pipeline of threads; started by pipewright launch "
      "(or "
      "torchrun, mpirun, srun), of processes.",
      "language_model");
  const pipewright::ProcessPlace place = pipewright::read_environment();
  o.launched = place.launched();
  o.speaks = place.rank == 0;
  if (o.launched) o.ranks = place.size;
  app.add_option("--ranks", o.ranks, "workers in the pipeline")->capture_default_str();
  app.add_option("--micro-batches", o.micro_batches, "slices of a batch")->capture_default_str();
  app.add_option("--schedule", o.schedule, "see pipewright simulate --help")->capture_default_str();
  app.add_option("--steps", o.steps, "of training")->capture_default_str();
  app.add_option("--batch", o.batch, "sequences a step")->capture_default_str();
  app.add_option("--layers", o.layers, "blocks of the model")->capture_default_str();
  app.add_option("--dim", o.dim, "its width")->capture_default_str();
  app.add_option("--heads", o.heads, "of attention")->capture_default_str();
  app.add_option("--seq", o.seq, "characters a sequence")->capture_default_str();
  app.add_option("--learning-rate", o.learning_rate, "at its peak")->capture_default_str();
  app.add_option("--seed", o.seed, "of weights and text")->capture_default_str();
  app.add_option("--html", o.html, "page for the last step, as predicted and as measured")
      ->capture_default_str();
  app.add_option("--checkpoints", o.checkpoints, "folder to save them in")->capture_default_str();
  app.add_option("--save-every", o.save_every, "so many steps")->capture_default_str();
  app.add_flag("--resume", o.resume, "go on from the newest one in --checkpoints, if there is any");
  app.add_flag("--quick", quick,
               "a small --dim, --seq, --batch and --steps where they are not given: to try it out");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      throw pipewright::InvalidArgument("options", std::string(error.what()) + "; see --help");
    }
    app.exit(error);  // --help
    return std::nullopt;
  }
  if (quick) {
    if (app.count("--dim") == 0) o.dim = 32;
    if (app.count("--seq") == 0) o.seq = 16;
    if (app.count("--batch") == 0) o.batch = 16;
    if (app.count("--steps") == 0) o.steps = 20;
  }
  check_at_least_one("--steps", o.steps);
  check_at_least_one("--save-every", o.save_every);
  if (o.resume && o.checkpoints.empty())
    throw pipewright::InvalidArgument("options", "--resume needs --checkpoints, the folder");
  return o;
}
