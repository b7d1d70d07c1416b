#include "pipewright/app/make.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "pipewright/base/error.h"
#include "pipewright/graph/batch_analysis.h"
#include "pipewright/graph/cut.h"
#include "pipewright/models/bert.h"
#include "pipewright/models/gpt.h"

namespace pipewright::app {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("model", why); }

/// Of the data, unless the config asks for more.
std::int64_t vocabulary(const config::Config& config, const DataSet& data) {
  const std::int64_t asked = config.model.parameters.integer("vocab");
  if (data.vocabulary == 0)
    refuse(fmt::format("model '{}' reads tokens, of which data '{}' has none", config.model.name,
                       config.data.name));
  if (asked == 0) return data.vocabulary;
  if (asked < data.vocabulary)
    refuse(fmt::format("model.vocab = {}, but the data has {} tokens; use at least that, or 0",
                       asked, data.vocabulary));
  return asked;
}

Sequence gpt(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_gpt({.layers = p.integer("layers"),
                   .dim = p.integer("dim"),
                   .heads = p.integer("heads"),
                   .seq = p.integer("seq"),
                   .vocab = vocabulary(config, data),
                   .dropout = p.number("dropout"),
                   .tied = p.flag("tied"),
                   .later = true,
                   .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence bert(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_bert({.layers = p.integer("layers"),
                    .dim = p.integer("dim"),
                    .heads = p.integer("heads"),
                    .seq = p.integer("seq"),
                    .vocab = vocabulary(config, data),
                    .dropout = p.number("dropout"),
                    .later = true,
                    .seed = static_cast<std::uint64_t>(config.seed)});
}

constexpr std::int64_t kExampleRows = 5;  // to see what the batch does in a graph
constexpr int kLeastLayers = 8;           // of a graph that is cut

Tensors example_inputs(const DataSet& data) {
  std::vector<std::int64_t> rows(
      static_cast<std::size_t>(std::min(kExampleRows, data.training->size())));
  std::iota(rows.begin(), rows.end(), 0);
  return data.training->batch(rows, 0).inputs;
}

MadeModel from_script(const config::Config& config, const DataSet& data) {
  const Graph graph = Graph::load(config.model.file);
  if (config.pipeline.micro_batches * config.data_parallel.replicas > 1)
    analyse_batch(graph, example_inputs(data)).check(true);
  const auto stages = config.pipeline.ranks * std::max<std::int64_t>(1, config.pipeline.chunks);
  CutOptions options;
  options.wanted_layers = std::max(kLeastLayers, static_cast<int>(2 * stages));
  return {cut(graph, options).model, [graph](const std::string& path) { graph.save(path); }};
}

}  // namespace

MadeModel make_model(const config::Config& config, const DataSet& data) {
  if (!config.model.file.empty()) return from_script(config, data);
  if (config.model.name == "gpt") return {gpt(config, data)};
  if (config.model.name == "bert") return {bert(config, data)};
  refuse(fmt::format("there is no model '{}'", config.model.name));
}

Loss make_loss(const config::Config& config) {
  return config.train.loss == "mean_squared_error" ? mean_squared_error() : cross_entropy();
}

}  // namespace pipewright::app
