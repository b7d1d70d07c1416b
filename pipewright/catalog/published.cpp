#include <fmt/format.h>

#include "pipewright/catalog/catalog.h"

namespace pipewright::catalog {
namespace {

using Integer = std::int64_t;
using Integers = std::vector<std::int64_t>;

PublishedSize transformer(const char* model, std::string name, Integer layers, Integer dim,
                          Integer heads, Integer seq, Integer vocab) {
  return {model,
          std::move(name),
          {{"layers", layers}, {"dim", dim}, {"heads", heads}, {"seq", seq}, {"vocab", vocab}}};
}

PublishedSize gpipe_transformer(Integer layers) {
  PublishedSize size = transformer("gpt", fmt::format("GPipe's Transformer-{}", layers), layers,
                                   2048, 32, 1024, 32000);
  size.parameters.emplace_back("tied", false);
  return size;
}

PublishedSize translator(Integer layers, Integer hidden, Integer heads) {
  return {"encoder_decoder",
          fmt::format("T({}, {}, {})", layers, hidden, heads),
          {{"layers", layers},
           {"hidden", hidden},
           {"heads", heads},
           {"dim", Integer{1024}},
           {"head_width", Integer{64}},
           {"source_vocab", Integer{64000}},
           {"target_vocab", Integer{64000}}}};
}

PublishedSize resnet(const char* name, Integers blocks) {
  return {"resnet",
          name,
          {{"blocks", std::move(blocks)},
           {"width", Integer{64}},
           {"small_images", false},
           {"classes", Integer{1000}}}};
}

PublishedSize amoebanet(Integer layers, Integer filters) {
  return {"amoebanet",
          fmt::format("AmoebaNet-D({}, {})", layers, filters),
          {{"layers", layers}, {"filters", filters}, {"classes", Integer{1000}}}};
}

PublishedSize unet(Integer convolutions, Integer width) {
  return {"unet",
          fmt::format("torchgpipe's U-Net({}, {})", convolutions, width),
          {{"depth", Integer{5}},
           {"convolutions", convolutions},
           {"width", width},
           {"classes", Integer{1}}}};
}

}  // namespace

const std::vector<PublishedSize>& published_sizes() {
  static const std::vector<PublishedSize> kAll = {
      transformer("gpt", "GPT-2", 12, 768, 12, 1024, 50257),
      transformer("gpt", "GPT-2 medium", 24, 1024, 16, 1024, 50257),
      transformer("gpt", "GPT-2 large", 36, 1280, 20, 1024, 50257),
      transformer("gpt", "GPT-2 XL", 48, 1600, 25, 1024, 50257),
      gpipe_transformer(3),
      gpipe_transformer(13),
      gpipe_transformer(48),
      gpipe_transformer(103),
      transformer("bert", "BERT base", 12, 768, 12, 512, 30522),
      transformer("bert", "BERT large", 24, 1024, 16, 512, 30522),
      translator(6, 8192, 16),
      translator(24, 8192, 16),
      translator(12, 16384, 32),
      translator(32, 16384, 32),
      translator(64, 16384, 32),
      resnet("ResNet-50", {3, 4, 6, 3}),
      resnet("ResNet-101", {3, 4, 23, 3}),
      {"vgg",
       "VGG-16",
       {{"convolutions", Integers{2, 2, 3, 3, 3}},
        {"widths", Integers{64, 128, 256, 512, 512}},
        {"hidden", Integer{4096}},
        {"pooled", Integer{7}},
        {"classes", Integer{1000}},
        {"dropout", 0.5}}},
      amoebanet(18, 208),
      amoebanet(18, 256),
      amoebanet(18, 416),
      amoebanet(18, 544),
      amoebanet(36, 544),
      amoebanet(72, 512),
      unet(6, 72),
      unet(11, 128),
      unet(24, 128),
      unet(24, 160),
      unet(48, 160)};
  return kAll;
}

}  // namespace pipewright::catalog
