#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/cli/commands.h"
#include "pipewright/config/nearest.h"
#include "pipewright/config/write.h"

namespace pipewright::cli {
namespace {

constexpr std::int64_t kFirstBatch = 32;
constexpr std::int64_t kFirstSteps = 1000;

struct Options {
  std::string name;
  std::string model = "gpt";
  std::string data;
  std::string output;
  bool force = false;
  bool reference = false;
};

const config::Component& find_component(const std::vector<config::Component>& all,
                                        const std::string& name, const char* what) {
  if (const config::Component* found = config::find(all, name)) return *found;
  std::vector<std::string> names;
  for (const config::Component& one : all) names.push_back(one.name);
  const std::string near = config::nearest(name, names);
  throw InvalidArgument(
      "init", fmt::format("there is no {} '{}'; {}", what, name,
                          near.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                       : fmt::format("did you mean '{}'?", near)));
}

void set_defaults(const config::Component& component, config::Values* values) {
  for (const config::Option& option : component.parameters)
    values->set(option.name, option.fallback);
}

config::Config first_config(const Options& options, const config::Known& known) {
  config::Config config;
  config.data.name = options.data.empty() ? "text" : options.data;
  if (options.model.ends_with(".pt")) {
    config.model.file = options.model;
  } else {
    const config::Component& model = find_component(known.models, options.model, "model");
    config.model.name = options.model;
    set_defaults(model, &config.model.parameters);
    if (options.data.empty()) config.data.name = model.goes_with;
  }
  set_defaults(find_component(known.data, config.data.name, "data source"),
               &config.data.parameters);
  config.data.batch = kFirstBatch;
  config.train.steps = kFirstSteps;
  return config;
}

void run(const Options& options) {
  const config::Known known = catalog::known();
  if (options.reference) {
    fmt::print("{}", config::reference_page(known));
    return;
  }
  if (options.name.empty() && options.output.empty()) {
    throw InvalidArgument("init", "no name; write pipewright init NAME, for NAME.toml");
  }
  const bool whole_name = options.name.ends_with(".toml");
  std::string path = options.output;
  if (path.empty()) path = whole_name ? options.name : options.name + ".toml";
  if (!options.force && std::filesystem::exists(path)) {
    throw InvalidArgument(
        "init",
        fmt::format("'{}' is there already; name another, or replace it with --force", path));
  }
  const std::string title =
      "A config as pipewright init writes it: `pipewright train` and this file's name train the "
      "model.";
  write_file(path, config::commented_toml(first_config(options, known), known, title), "init");
  fmt::print("wrote {}\nedit it, then: pipewright train {}\n", path, path);
}

}  // namespace

void add_init(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("init", "Write a config file to start from, with every key explained");
  command->add_option("NAME", options->name, "Writes NAME.toml");
  command->add_option("--model", options->model,
                      "The model to train, by name or as a TorchScript file (default gpt)");
  command->add_option("--data", options->data,
                      "The data source to train on (default: the one that fits the model)");
  command->add_option("--output", options->output, "Write this file instead of NAME.toml");
  command->add_flag("--force", options->force, "Replace a file that is there");
  command->add_flag("--reference", options->reference,
                    "Print the page with all keys (docs/configuration.md) instead");
  command->callback([options] { run(*options); });
}

}  // namespace pipewright::cli
