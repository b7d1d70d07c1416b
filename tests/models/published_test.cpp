// The sizes that papers made known have their parameter counts. No such model is held for it:
// layers are looked at one by one, and no number is drawn.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pipewright/app/make.h"
#include "pipewright/catalog/catalog.h"
#include "pipewright/nn/outline.h"

namespace pipewright {
namespace {

Sequence make(const catalog::PublishedSize& size) {
  const config::Known known = catalog::known();
  config::Config config;
  config.model.name = size.model;
  for (const config::Option& option : config::find(known.models, size.model)->parameters)
    config.model.parameters.set(option.name, option.fallback);
  for (const auto& [name, value] : size.parameters) config.model.parameters.set(name, value);
  app::DataSet data;
  data.vocabulary = data.source_vocabulary = 1;
  data.channels = 3;
  data.image = 224;
  return app::make_model(config, data).layers;
}

/// Exact where the publication is; else to the digits it gives.
struct Count {
  std::int64_t parameters;
  double within = 0;
};

const std::map<std::string, Count>& counts() {
  static const std::map<std::string, Count> kAll = {
      {"GPT-2", {124'439'808}},
      {"GPT-2 medium", {354'823'168}},
      {"GPT-2 large", {774'030'080}},
      {"GPT-2 XL", {1'557'611'200}},
      {"BERT base", {109'514'298}},
      {"BERT large", {335'174'458}},
      {"ResNet-50", {25'557'032}},
      {"ResNet-101", {44'549'160}},
      {"VGG-16", {138'357'544}},
      // GPipe's table 1; ours has 2 M learned positions.
      {"GPipe's Transformer-3", {282'200'000, 2.5e6}},
      {"GPipe's Transformer-13", {786'000'000, 2.5e6}},
      {"GPipe's Transformer-103", {5'300'000'000, 5e7}},
      // GPipe's section on translation: 400M, 1.3B deep and wide, 3B, 6B.
      {"T(6, 8192, 16)", {400'000'000, 1.5e7}},
      {"T(24, 8192, 16)", {1'300'000'000, 7e7}},
      {"T(12, 16384, 32)", {1'300'000'000, 7e7}},
      {"T(32, 16384, 32)", {3'000'000'000, 1e8}},
      {"T(64, 16384, 32)", {6'000'000'000, 1e8}},
      // torchgpipe's tables of memory.
      {"AmoebaNet-D(18, 208)", {81'500'000, 5e4}},
      {"AmoebaNet-D(18, 416)", {319'000'000, 5e4}},
      {"AmoebaNet-D(18, 544)", {542'700'000, 5e4}},
      {"AmoebaNet-D(36, 544)", {1'060'000'000, 5e6}},
      {"AmoebaNet-D(72, 512)", {1'840'000'000, 5e6}},
      {"torchgpipe's U-Net(6, 72)", {362'200'000, 5e4}},
      {"torchgpipe's U-Net(11, 128)", {2'210'000'000, 5e6}},
      {"torchgpipe's U-Net(24, 128)", {4'990'000'000, 5e6}},
      {"torchgpipe's U-Net(24, 160)", {7'800'000'000, 5e6}},
      {"torchgpipe's U-Net(48, 160)", {15'820'000'000, 5e6}}};
  return kAll;
}

TEST(PublishedSizes, HaveTheirParameterCounts) {
  std::size_t checked = 0;
  for (const catalog::PublishedSize& size : catalog::published_sizes()) {
    const auto expected = counts().find(size.name);
    if (expected == counts().end()) continue;
    ++checked;
    EXPECT_NEAR(static_cast<double>(num_parameters(outline_of(make(size)))),
                static_cast<double>(expected->second.parameters), expected->second.within)
        << size.name;
  }
  EXPECT_EQ(checked, counts().size());
}

/// Stages balanced by these hints are what the partitioner starts from.
TEST(PublishedSizes, ResNet50HasTheMultiplyAddsOfItsPaper) {
  double cost = 0;
  for (const catalog::PublishedSize& size : catalog::published_sizes()) {
    if (size.name != "ResNet-50") continue;
    const Sequence model = make(size);
    for (const Layer& layer : model.layers()) cost += layer.options.cost;
  }
  EXPECT_NEAR(cost, 4.09e9, 0.02e9);  // 3.8e9 in the paper; the stride in the 3 x 3 adds to it
}

}  // namespace
}  // namespace pipewright
