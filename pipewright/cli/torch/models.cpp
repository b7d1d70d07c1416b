#include <fmt/format.h>

#include "pipewright/app/make.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/cli/torch/commands.h"
#include "pipewright/nn/outline.h"

namespace pipewright::cli {
namespace {

/// For models that take their sizes from the data.
app::DataSet sample_data() {
  app::DataSet data;
  data.vocabulary = data.source_vocabulary = 260;  // bytes as tokens
  data.channels = 3;
  data.image = 224;
  data.classes = 10;
  data.click_numbers = 13;  // as Criteo's
  data.click_fields = 26;
  data.click_buckets = 1000;
  return data;
}

/// With its default parameters, but for those given.
std::string size_of(const config::Component& model,
                    const std::vector<std::pair<std::string, config::Value>>& parameters) {
  config::Config config;
  config.model.name = model.name;
  for (const config::Option& option : model.parameters)
    config.model.parameters.set(option.name, option.fallback);
  for (const auto& [name, value] : parameters) config.model.parameters.set(name, value);
  app::DataSet data = sample_data();
  if (!parameters.empty()) data.classes = 0;  // a published size says all
  const Sequence layers = app::make_model(config, data).layers;
  return fmt::format("{} layers, {} parameters", layers.size(), num_parameters(outline_of(layers)));
}

std::string written(const catalog::PublishedSize& size) {
  std::string text;
  for (const auto& [name, value] : size.parameters)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, config::toml_text(value));
  return text;
}

void print_model(const config::Component& model) {
  const app::DataSet data = sample_data();
  fmt::print(
      "{}: {}\n  as it is by default: {} (with {} tokens, {} classes of pictures, or clicks of {} "
      "numbers and {} fields of {} values)\n",
      model.name, model.words, size_of(model, {}), data.vocabulary, data.classes,
      data.click_numbers, data.click_fields, data.click_buckets);
  for (const catalog::PublishedSize& size : catalog::published_sizes()) {
    if (size.model == model.name)
      fmt::print("  {}: {}\n    {}\n", size.name, size_of(model, size.parameters), written(size));
  }
}

void print_options(const config::Component& component) {
  for (const config::Option& option : component.parameters) {
    fmt::print("  {:<18} {} Default {}.\n", option.name, option.words,
               config::option_text(option, option.fallback));
  }
}

void run() {
  const config::Known known = catalog::known();
  fmt::print("models, for [model] name:\n\n");
  for (const config::Component& model : known.models) {
    print_model(model);
    print_options(model);
    fmt::print("\n");
  }
  fmt::print("data, for [data] name:\n\n");
  for (const config::Component& source : known.data) {
    fmt::print("{}: {}\n", source.name, source.words);
    print_options(source);
    fmt::print("\n");
  }
}

}  // namespace

void add_models(CLI::App& program) {
  program.add_subcommand("models", "List the models and data sources that a config may name")
      ->callback(run);
}

}  // namespace pipewright::cli
