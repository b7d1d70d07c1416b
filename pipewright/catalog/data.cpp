#include "pipewright/catalog/lists.h"

namespace pipewright::catalog {
namespace {

using config::at_least;
using config::count;
using config::Option;

Option tokenizer(const std::string& fallback) {
  return config::choice(
      "tokenizer", fallback,
      {{"bytes", "every byte is a token"}, {"wordpiece", "pieces of words, by a vocabulary"}},
      "How text becomes tokens.");
}

std::vector<Option> text_parameters(const std::string& by_default) {
  return {
      tokenizer(by_default),
      config::text("vocabulary", "", "The vocab.txt of wordpiece; may be left out for made text."),
      config::integer("length", 0, at_least(0), "Tokens a sample; 0: the model's seq."),
      config::integer("tokens", 200000, count(1), "Of made text, where path is not set."),
      config::integer("validation_tokens", 20000, count(1), "Of made text to validate with.")};
}

std::vector<Option> pair_parameters() {
  return {
      config::text("target", "", "The file of translations: line n is that of line n of path."),
      config::text("validation_target", "", "Likewise, of validation_path."),
      tokenizer("wordpiece"),
      config::text("vocabulary", "", "The vocab.txt of wordpiece; may be left out for made pairs."),
      config::text("target_vocabulary", "", "Of the translations; empty: the same."),
      config::integer("length", 0, at_least(0),
                      "Tokens of a sentence, with its end; 0: the model's seq."),
      config::integer("pairs", 4000, count(1), "Made ones, where path is not set."),
      config::integer("validation_pairs", 200, count(1), "Made ones to validate with.")};
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

void add_made_pictures(std::vector<Option>* options) {
  options->push_back(config::integer("images", 2000, count(1), "Made ones."));
  options->push_back(
      config::integer("validation_images", 200, count(1), "Made ones to validate with."));
  options->push_back(config::integer("channels", 1, count(1), "Of made ones."));
  options->push_back(config::integer("size", 16, count(8), "Of made ones: height and width."));
}

std::vector<Option> image_parameters() {
  std::vector<Option> options = {
      config::choice("format", "made",
                     {{"made", "stripes in noise, ten classes; no path"},
                      {"idx", "path and labels are IDX files, as MNIST's"},
                      {"cifar10", "path is a .bin file or a folder of them"}},
                     "What the files are."),
      config::text("labels", "", "The file of labels, of idx."),
      config::text("validation_labels", "", "Likewise, to validate with.")};
  add_made_pictures(&options);
  return options;
}

std::vector<Option> segment_parameters() {
  std::vector<Option> options;
  add_made_pictures(&options);
  return options;
}

}  // namespace

std::vector<config::Component> data_sources() {
  return {
      {"text", "Text files for a language model; without a path, made sentences.",
       text_parameters("bytes")},
      {"masked_text", "The same for a masked language model.", text_parameters("wordpiece")},
      {"pairs", "Sentences and their translations; without a path, made ones.", pair_parameters()},
      {"images", "Pictures with a class each.", image_parameters()},
      {"segments", "Made pictures with a class for every pixel: discs and squares in noise.",
       segment_parameters()},
      {"arrays", "Rows of arrays in files.", array_parameters()}};
}

}  // namespace pipewright::catalog
