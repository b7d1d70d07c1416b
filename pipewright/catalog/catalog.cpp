#include "pipewright/catalog/catalog.h"

#include "pipewright/schedule/schedule.h"

namespace pipewright::catalog {
namespace {

using config::at_least;
using config::Component;
using config::count;
using config::Option;

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
          config::number("dropout", sizes.dropout, config::from_to_below(0, 1), "Share left out.")};
}

std::vector<Component> models() {
  auto gpt = transformer_parameters({.layers = 4, .dim = 64, .heads = 4, .seq = 64, .dropout = 0});
  gpt.push_back(config::flag("tied", true, "The head uses the weight of the token embedding."));
  auto bert =
      transformer_parameters({.layers = 2, .dim = 64, .heads = 4, .seq = 64, .dropout = 0.1});
  return {{"gpt", "A decoder-only transformer: predicts the next token.", gpt, "text"},
          {"bert", "An encoder with a masked-language-model head: predicts hidden tokens.", bert,
           "masked_text"}};
}

std::vector<Option> text_parameters(const std::string& tokenizer) {
  return {
      config::choice(
          "tokenizer", tokenizer,
          {{"bytes", "every byte is a token"}, {"wordpiece", "pieces of words, by a vocabulary"}},
          "How text becomes tokens."),
      config::text("vocabulary", "", "The vocab.txt of wordpiece; may be left out for made text."),
      config::integer("length", 0, at_least(0), "Tokens a sample; 0: the model's seq."),
      config::integer("tokens", 200000, count(1), "Of made text, where path is not set."),
      config::integer("validation_tokens", 20000, count(1), "Of made text to validate with.")};
}

Option texts(std::string name, std::string words) {
  Option option = config::text(std::move(name), "", std::move(words));
  option.type = config::Type::kTexts;
  option.fallback = std::vector<std::string>();
  return option;
}

std::vector<Option> array_parameters() {
  return {texts("inputs", "Arrays, a row a sample: rows.npy, rows.idx, file.safetensors:name."),
          texts("targets", "Likewise, what the loss compares with."),
          texts("validation_inputs", "To validate with."),
          texts("validation_targets", "To validate with.")};
}

std::vector<Option> image_parameters() {
  return {config::choice("format", "made",
                         {{"made", "stripes in noise, ten classes; no path"},
                          {"idx", "path and labels are IDX files, as MNIST's"},
                          {"cifar10", "path is a .bin file or a folder of them"}},
                         "What the files are."),
          config::text("labels", "", "The file of labels, of idx."),
          config::text("validation_labels", "", "Likewise, to validate with."),
          config::integer("images", 2000, count(1), "Made ones."),
          config::integer("validation_images", 200, count(1), "Made ones to validate with."),
          config::integer("channels", 1, count(1), "Of made ones."),
          config::integer("size", 16, count(8), "Of made ones: height and width.")};
}

std::vector<Component> data_sources() {
  return {{"text", "Text files for a language model; without a path, made sentences.",
           text_parameters("bytes")},
          {"masked_text", "The same for a masked language model.", text_parameters("wordpiece")},
          {"images", "Pictures with a class each.", image_parameters()},
          {"arrays", "Rows of arrays in files.", array_parameters()}};
}

}  // namespace

config::Known known() {
  config::Known known;
  known.models = models();
  known.data = data_sources();
  for (const ScheduleInfo& info : all_schedules()) {
    if (info.forward_only) continue;
    known.schedules.push_back({std::string(info.name), std::string(info.summary),
                               info.default_chunks, info.least_chunks, info.most_chunks});
  }
  known.losses = {{"cross_entropy", "mean over targets that are not ignored"},
                  {"mean_squared_error", "mean over rows"}};
  return known;
}

}  // namespace pipewright::catalog
