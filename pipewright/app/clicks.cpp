#include "pipewright/app/clicks.h"

#include <fmt/format.h>

#include <map>

#include "pipewright/base/error.h"
#include "pipewright/data/click_source.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/models/click_models.h"

namespace pipewright::app {
namespace {

/// A file's rows, or made ones: those of validation follow those of training.
std::shared_ptr<const ClickSet> open_set(const config::Config& config, const std::string& path,
                                         bool validation) {
  const config::Values& p = config.data.parameters;
  const auto numbers = static_cast<int>(p.integer("numeric"));
  const auto fields = static_cast<int>(p.integer("fields"));
  if (!path.empty()) {
    return std::make_shared<CriteoFile>(
        path, CriteoOptions{.numeric = numbers, .fields = fields, .buckets = p.integer("buckets")});
  }
  return std::make_shared<GeneratedClicks>(
      ClickLogOptions{.rows = p.integer(validation ? "validation_rows" : "rows"),
                      .numeric = numbers,
                      .fields = fields,
                      .values = p.integer("values"),
                      .interactions = static_cast<int>(p.integer("interactions")),
                      .seed = static_cast<std::uint64_t>(config.seed),
                      .first_row = validation ? p.integer("rows") : 0});
}

using Maker = Sequence (*)(const ClickModelSizes&);

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all = {{"wide_deep", make_wide_deep},
                                                   {"deepfm", make_deepfm},
                                                   {"dlrm", make_dlrm},
                                                   {"din", make_din}};
  return all;
}

}  // namespace

DataSet open_clicks(const config::Config& config) {
  DataSet data;
  const bool made = config.data.path.empty();
  const auto training = open_set(config, config.data.path, false);
  data.training = std::make_shared<ClickSource>(training);
  if (made || !config.data.validation_path.empty()) {
    data.validation =
        std::make_shared<ClickSource>(open_set(config, config.data.validation_path, true));
  }
  data.click_numbers = training->num_numeric();
  data.click_fields = training->num_fields();
  data.click_buckets = training->buckets();
  data.words = fmt::format("{} made clicks", training->size());
  if (const auto* file = dynamic_cast<const CriteoFile*>(training.get())) {
    data.words = fmt::format("{}: {}", config.data.path, file->report().text());
    if (data.words.ends_with('\n')) data.words.pop_back();
  }
  return data;
}

bool is_click_model(const std::string& name) { return makers().contains(name); }

bool is_of_clicks(const config::Config& config) {
  if (!config.train.loss.empty()) return config.train.loss == "binary_cross_entropy";
  return config.model.file.empty() && is_click_model(config.model.name);
}

Sequence make_click_model(const config::Config& config, const DataSet& data) {
  if (data.click_fields == 0) {
    throw InvalidArgument("model", fmt::format("model '{}' reads clicks, which data '{}' has not; "
                                               "use data.name = \"clicks\"",
                                               config.model.name, config.data.name));
  }
  const config::Values& p = config.model.parameters;
  ClickModelSizes sizes;
  sizes.numeric = data.click_numbers;
  sizes.fields = data.click_fields;
  sizes.buckets = data.click_buckets;
  sizes.dim = p.integer("dim");
  sizes.width = p.integer("width");
  sizes.depth = p.integer("depth");
  sizes.dropout = p.number("dropout");
  sizes.sparse = p.flag("sparse");
  if (p.has("crosses")) sizes.crosses = p.integer("crosses");
  if (p.has("history")) sizes.history = p.integer("history");
  sizes.later = true;
  sizes.seed = static_cast<std::uint64_t>(config.seed);
  return makers().at(config.model.name)(sizes);
}

}  // namespace pipewright::app
