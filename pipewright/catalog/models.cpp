#include "pipewright/catalog/lists.h"

namespace pipewright::catalog {
namespace {

using config::at_least;
using config::Component;
using config::count;
using config::Option;

Option dropout(double fallback) {
  return config::number("dropout", fallback, config::from_to_below(0, 1), "Share left out.");
}

Option integers(std::string name, std::vector<std::int64_t> fallback, std::string words) {
  Option option = config::integer(std::move(name), 0, count(1), std::move(words));
  option.type = config::Type::kIntegers;
  option.fallback = std::move(fallback);
  return option;
}

struct TransformerSizes {
  std::int64_t layers, dim, heads, seq;
  double dropout;
};

std::vector<Option> transformer_parameters(const TransformerSizes& sizes) {
  return {config::integer("layers", sizes.layers, count(1), "Blocks."),
          config::integer("dim", sizes.dim, count(1), "Width; a multiple of heads."),
          config::integer("heads", sizes.heads, count(1), "Of attention."),
          config::integer("seq", sizes.seq, count(1), "Tokens a sample."),
          config::integer("vocab", 0, at_least(0), "Tokens there are; 0: as many as the data has."),
          dropout(sizes.dropout)};
}

Component gpt() {
  auto parameters =
      transformer_parameters({.layers = 4, .dim = 64, .heads = 4, .seq = 64, .dropout = 0});
  parameters.push_back(
      config::flag("tied", true, "The head uses the weight of the token embedding."));
  parameters.push_back(config::choice(
      "gelu", "exact", {{"exact", ""}, {"tanh", "the approximation that GPT-2 was trained with"}},
      "The activation."));
  return {"gpt", "A decoder-only transformer: predicts the next token.", parameters, "text"};
}

Component bert() {
  return {"bert", "An encoder with a masked-language-model head: predicts hidden tokens.",
          transformer_parameters({.layers = 2, .dim = 64, .heads = 4, .seq = 64, .dropout = 0.1}),
          "masked_text"};
}

Component encoder_decoder() {
  return {"encoder_decoder",
          "A transformer that translates, T(layers, hidden, heads) of the GPipe paper.",
          {config::integer("layers", 2, count(1), "Of the encoder, and as many of the decoder."),
           config::integer("hidden", 128, count(1), "Width of the MLPs."),
           config::integer("heads", 4, count(1), "Of every attention."),
           config::integer("dim", 64, count(1), "Width; a multiple of heads."),
           config::integer("head_width", 0, at_least(0), "Of a head; 0: dim / heads."),
           config::integer("seq", 24, count(1), "Tokens of a sentence at most."),
           config::integer("source_vocab", 0, at_least(0), "Tokens; 0: as many as the data has."),
           config::integer("target_vocab", 0, at_least(0), "Tokens; 0: as many as the data has."),
           dropout(0.1),
           config::flag("tied", true, "The head uses the weight of the target's embedding.")},
          "pairs"};
}

Option classes() {
  return config::integer("classes", 0, at_least(0), "There are; 0: as many as the data has.");
}

Component resnet() {
  return {"resnet",
          "A residual network of bottleneck blocks: tells what is in a picture.",
          {integers("blocks", {1, 1}, "By group; each group halves the picture."),
           config::integer("width", 16, count(1), "Of the first group; each group doubles it."),
           config::flag("small_images", true, "A stem that keeps the size, for 32 x 32, say."),
           classes()},
          "images"};
}

Component vgg() {
  return {"vgg",
          "A plain network of 3 x 3 convolutions: tells what is in a picture.",
          {integers("convolutions", {1, 1}, "By group; each group halves the picture."),
           integers("widths", {16, 32}, "Of the outputs, by group."),
           config::integer("hidden", 64, count(1), "Of the linear layers before the last."),
           config::integer("pooled", 4, count(1), "Height and width that the linear layers see."),
           config::flag("norm", false, "A batch norm after each convolution."), dropout(0.1),
           classes()},
          "images"};
}

Component amoebanet() {
  return {"amoebanet",
          "AmoebaNet-D(layers, filters) of the GPipe paper: tells what is in a picture.",
          {config::integer("layers", 3, count(1), "Normal cells; a multiple of 3."),
           config::integer("filters", 32, count(1), "A multiple of 16."), classes()},
          "images"};
}

Component unet() {
  return {"unet",
          "A U-Net with long skips: tells of every pixel what it belongs to.",
          {config::integer("depth", 2, config::at_least(1, 16), "Times the picture is halved."),
           config::integer("convolutions", 2, count(1), "Of every step down or up."),
           config::integer("width", 16, count(2), "Of the first step; each doubles it. Even."),
           dropout(0.1), classes()},
          "segments"};
}

}  // namespace

std::vector<Component> models() {
  return {gpt(), bert(), encoder_decoder(), resnet(), vgg(), amoebanet(), unet()};
}

}  // namespace pipewright::catalog
