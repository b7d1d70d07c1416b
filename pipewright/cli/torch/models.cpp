#include <fmt/format.h>

#include "pipewright/app/make.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/cli/torch/commands.h"
#include "pipewright/nn/outline.h"

namespace pipewright::cli {
namespace {

config::Config config_of(const config::Component& model) {
  config::Config config;
  config.model.name = model.name;
  for (const config::Option& option : model.parameters)
    config.model.parameters.set(option.name, option.fallback);
  return config;
}

constexpr std::int64_t kSampleVocabulary = 260;  // bytes as tokens

void print_model(const config::Component& model) {
  app::DataSet data;
  data.vocabulary = kSampleVocabulary;
  const Sequence layers = app::make_model(config_of(model), data).layers;
  std::int64_t parameters = 0;
  int last = -1;  // shared tensors count once; numbers rise with first uses
  for (const auto& layer : outline_of(layers)) {
    for (const TensorOutline& tensor : layer) {
      if (!tensor.is_parameter || tensor.number <= last) continue;
      last = tensor.number;
      parameters += tensor.numel();
    }
  }
  fmt::print("{}: {}\n  as it is by default: {} layers, {} parameters (with {} tokens)\n",
             model.name, model.words, layers.size(), parameters, kSampleVocabulary);
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
