#include "pipewright/app/make.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "pipewright/app/clicks.h"
#include "pipewright/base/error.h"
#include "pipewright/graph/batch_analysis.h"
#include "pipewright/graph/cut.h"
#include "pipewright/models/amoebanet.h"
#include "pipewright/models/bert.h"
#include "pipewright/models/encoder_decoder.h"
#include "pipewright/models/gpt.h"
#include "pipewright/models/resnet.h"
#include "pipewright/models/unet.h"
#include "pipewright/models/vgg.h"

namespace pipewright::app {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw InvalidArgument("model", why); }

/// Of the data, unless the config asks for more. `key`: of the model.
std::int64_t vocabulary(const config::Config& config, const char* key, std::int64_t of_data) {
  const std::int64_t asked = config.model.parameters.integer(key);
  if (of_data == 0)
    refuse(fmt::format("model '{}' reads tokens, of which data '{}' has none", config.model.name,
                       config.data.name));
  if (asked == 0) return of_data;
  if (asked < of_data)
    refuse(fmt::format("model.{} = {}, but the data has {} tokens; use at least that, or 0", key,
                       asked, of_data));
  return asked;
}

/// Likewise.
std::int64_t classes(const config::Config& config, const DataSet& data) {
  const std::int64_t asked = config.model.parameters.integer("classes");
  if (data.channels == 0)
    refuse(fmt::format("model '{}' looks at pictures, of which data '{}' has none",
                       config.model.name, config.data.name));
  if (asked == 0 && data.classes == 0)
    refuse("set model.classes: the data does not tell how many there are");
  if (asked == 0) return data.classes;
  if (asked < data.classes)
    refuse(fmt::format("model.classes = {}, but the data has {}; use at least that, or 0", asked,
                       data.classes));
  return asked;
}

Sequence gpt(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_gpt({.layers = p.integer("layers"),
                   .dim = p.integer("dim"),
                   .heads = p.integer("heads"),
                   .seq = p.integer("seq"),
                   .vocab = vocabulary(config, "vocab", data.vocabulary),
                   .dropout = p.number("dropout"),
                   .tied = p.flag("tied"),
                   .tanh_gelu = p.text("gelu") == "tanh",
                   .later = true,
                   .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence bert(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_bert({.layers = p.integer("layers"),
                    .dim = p.integer("dim"),
                    .heads = p.integer("heads"),
                    .seq = p.integer("seq"),
                    .vocab = vocabulary(config, "vocab", data.vocabulary),
                    .dropout = p.number("dropout"),
                    .later = true,
                    .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence encoder_decoder(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  if (data.source_vocabulary == 0)
    refuse(fmt::format("model '{}' translates, and data '{}' has no pairs", config.model.name,
                       config.data.name));
  return make_encoder_decoder(
      {.layers = p.integer("layers"),
       .hidden = p.integer("hidden"),
       .heads = p.integer("heads"),
       .dim = p.integer("dim"),
       .head_width = p.integer("head_width"),
       .seq = p.integer("seq"),
       .source_vocab = vocabulary(config, "source_vocab", data.source_vocabulary),
       .target_vocab = vocabulary(config, "target_vocab", data.vocabulary),
       .pad = data.pad,
       .dropout = p.number("dropout"),
       .tied = p.flag("tied"),
       .later = true,
       .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence resnet(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_resnet({.blocks = p.integers("blocks"),
                      .width = p.integer("width"),
                      .channels = data.channels,
                      .classes = classes(config, data),
                      .image = data.image,
                      .small_images = p.flag("small_images"),
                      .later = true,
                      .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence vgg(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_vgg({.convolutions = p.integers("convolutions"),
                   .widths = p.integers("widths"),
                   .hidden = p.integer("hidden"),
                   .pooled = p.integer("pooled"),
                   .channels = data.channels,
                   .classes = classes(config, data),
                   .image = data.image,
                   .dropout = p.number("dropout"),
                   .norm = p.flag("norm"),
                   .later = true,
                   .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence amoebanet(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_amoebanet({.layers = p.integer("layers"),
                         .filters = p.integer("filters"),
                         .channels = data.channels,
                         .classes = classes(config, data),
                         .image = data.image,
                         .later = true,
                         .seed = static_cast<std::uint64_t>(config.seed)});
}

Sequence unet(const config::Config& config, const DataSet& data) {
  const config::Values& p = config.model.parameters;
  return make_unet({.depth = p.integer("depth"),
                    .convolutions = p.integer("convolutions"),
                    .width = p.integer("width"),
                    .channels = data.channels,
                    .classes = classes(config, data),
                    .image = data.image,
                    .dropout = p.number("dropout"),
                    .later = true,
                    .seed = static_cast<std::uint64_t>(config.seed)});
}

using Maker = Sequence (*)(const config::Config&, const DataSet&);

Maker maker_of(const std::string& name) {
  static const std::map<std::string, Maker> makers = {
      {"gpt", gpt},       {"bert", bert}, {"encoder_decoder", encoder_decoder},
      {"resnet", resnet}, {"vgg", vgg},   {"amoebanet", amoebanet},
      {"unet", unet}};
  const auto found = makers.find(name);
  if (found == makers.end()) refuse(fmt::format("there is no model '{}'", name));
  return found->second;
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
  const bool lanes = config.auto_micro_batch.num != 1;  // batch norms cannot run beside themselves
  if (lanes || config.pipeline.micro_batches * config.data_parallel.replicas > 1)
    analyse_batch(graph, example_inputs(data)).check(/*allow_batch_norm=*/!lanes);
  const auto stages = config.pipeline.ranks * std::max<std::int64_t>(1, config.pipeline.chunks);
  CutOptions options;
  options.wanted_layers = std::max(kLeastLayers, static_cast<int>(2 * stages));
  return {cut(graph, options).model, [graph](const std::string& path) { graph.save(path); }};
}

}  // namespace

MadeModel make_model(const config::Config& config, const DataSet& data) {
  if (!config.model.file.empty()) return from_script(config, data);
  if (is_click_model(config.model.name)) return {make_click_model(config, data)};
  return {maker_of(config.model.name)(config, data)};
}

Loss make_loss(const config::Config& config) {
  if (is_of_clicks(config)) return binary_cross_entropy();
  return config.train.loss == "mean_squared_error" ? mean_squared_error() : cross_entropy();
}

}  // namespace pipewright::app
