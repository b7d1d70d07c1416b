#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "pipewright/data/click_source.h"
#include "pipewright/input/generated_clicks.h"
#include "pipewright/models/click_models.h"

namespace pipewright {

inline const std::vector<std::string>& click_model_names() {
  static const std::vector<std::string> names = {"wide_deep", "deepfm", "dlrm", "din"};
  return names;
}

constexpr int kClickNumbers = 3;
constexpr int kClickFields = 7;
constexpr std::int64_t kClickValues = 8;

/// For the generated clicks below.
inline Sequence make_clicks_model(const std::string& name, ClickModelSizes sizes) {
  sizes.numeric = kClickNumbers;
  sizes.fields = kClickFields;
  sizes.buckets = kClickValues + 1;
  sizes.width = 32;
  if (name == "wide_deep") return make_wide_deep(sizes);
  if (name == "deepfm") return make_deepfm(sizes);
  return name == "dlrm" ? make_dlrm(sizes) : make_din(sizes);
}

inline ClickLogOptions click_options(std::int64_t first, std::int64_t rows) {
  return {.rows = rows,
          .numeric = kClickNumbers,
          .fields = kClickFields,
          .values = kClickValues,
          .interactions = 3,
          .seed = 5,
          .first_row = first};
}

/// Rows of the log from `first` on.
inline SampleBatch click_rows(std::int64_t first, std::int64_t rows) {
  const ClickSource source(std::make_shared<GeneratedClicks>(click_options(first, rows)));
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  return source.batch(all, 0);
}

/// The layers one after the other, on this thread.
inline torch::Tensor run_layers(const Sequence& model, Tensors x) {
  std::map<std::string, torch::Tensor> skips;
  for (const Layer& layer : model.layers()) {
    for (const auto& name : layer.options.pop) x.push_back(skips.at(name));
    x = layer.forward(x);
    const auto& names = layer.options.stash;
    for (std::size_t i = 0; i < names.size(); ++i) skips[names[i]] = x[x.size() - names.size() + i];
    x.resize(x.size() - names.size());
  }
  return x.at(0);
}

}  // namespace pipewright
