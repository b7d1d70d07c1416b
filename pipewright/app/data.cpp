#include <fmt/format.h>

#include "pipewright/app/make.h"
#include "pipewright/base/error.h"
#include "pipewright/data/array_source.h"
#include "pipewright/data/image_source.h"
#include "pipewright/data/token_source.h"
#include "pipewright/input/generated_images.h"
#include "pipewright/input/sentences.h"
#include "pipewright/input/wordpiece.h"

namespace pipewright::app {
namespace {

std::shared_ptr<const Tokenizer> tokenizer_of(const config::Config& config) {
  const config::Values& p = config.data.parameters;
  if (p.text("tokenizer") == "bytes") return std::make_shared<ByteTokenizer>();
  const std::string& vocabulary = p.text("vocabulary");
  if (!vocabulary.empty()) return std::make_shared<WordPiece>(WordPiece::load(vocabulary));
  if (!config.data.path.empty()) {
    throw InvalidArgument("data",
                          "data.tokenizer = \"wordpiece\" needs data.vocabulary, a vocab.txt");
  }
  return std::make_shared<WordPiece>(sentence_vocabulary(), "the made vocabulary");
}

/// The tokens of a file or folder; made ones where `path` is empty.
std::shared_ptr<const TokenStream> stream_of(const std::string& path, const Tokenizer& tokenizer,
                                             std::int64_t made_tokens, std::uint64_t seed) {
  if (path.empty())
    return std::make_shared<MemoryStream>(sentence_tokens(tokenizer, made_tokens, seed));
  if (dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr)
    return std::make_shared<ByteStream>(path);
  return std::make_shared<MemoryStream>(tokenize_files(path, tokenizer));
}

/// Training and validation, each made of its stream by `make`.
template <typename Make>
DataSet open_streams(const config::Config& config, const Make& make) {
  const config::Values& p = config.data.parameters;
  const auto tokenizer = tokenizer_of(config);
  const auto seed = static_cast<std::uint64_t>(config.seed);
  const auto open = [&](const std::string& path, std::int64_t made_tokens, std::uint64_t its_seed) {
    return make(stream_of(path, *tokenizer, made_tokens, its_seed), tokenizer);
  };
  DataSet data;
  data.vocabulary = tokenizer->size();
  const bool made = config.data.path.empty();
  data.training = open(config.data.path, p.integer("tokens"), seed);
  if (made || !config.data.validation_path.empty()) {
    // Made validation text is other text than that trained on.
    data.validation = open(config.data.validation_path, p.integer("validation_tokens"), seed + 1);
  }
  data.words = fmt::format("{} samples of {}", data.training->size(),
                           made ? std::string("made text") : config.data.path);
  return data;
}

/// Tokens a sample.
std::int64_t length_of(const config::Config& config) {
  const std::int64_t asked = config.data.parameters.integer("length");
  if (asked > 0) return asked;
  if (config.model.parameters.has("seq")) return config.model.parameters.integer("seq");
  throw InvalidArgument("data",
                        "set data.length: the model does not tell how many tokens it takes");
}

DataSet open_text(const config::Config& config) {
  const std::int64_t length = length_of(config);
  return open_streams(config, [&](auto stream, const auto&) -> std::shared_ptr<const DataSource> {
    return std::make_shared<TokenSource>(std::move(stream), length);
  });
}

DataSet open_masked_text(const config::Config& config) {
  const std::int64_t length = length_of(config);
  const auto seed = static_cast<std::uint64_t>(config.seed);
  return open_streams(
      config, [&](auto stream, const auto& tokenizer) -> std::shared_ptr<const DataSource> {
        return std::make_shared<MaskedSource>(std::move(stream), tokenizer, length, seed);
      });
}

/// `path` and `labels` as the format wants them.
std::shared_ptr<const DataSource> open_images(const config::Config& config, const std::string& path,
                                              const std::string& labels, std::int64_t made,
                                              std::uint64_t seed) {
  const config::Values& p = config.data.parameters;
  const std::string& format = p.text("format");
  std::shared_ptr<const ImageSet> images;
  if (format == "made") {
    images = std::make_shared<GeneratedImages>(made, static_cast<int>(p.integer("channels")),
                                               static_cast<int>(p.integer("size")), seed);
  } else if (format == "idx") {
    images = std::make_shared<IdxImages>(path, labels);
  } else {
    images = std::make_shared<CifarImages>(path);
  }
  return std::make_shared<ImageSource>(images);
}

DataSet open_image_data(const config::Config& config) {
  const config::Values& p = config.data.parameters;
  const bool made = p.text("format") == "made";
  if (made != config.data.path.empty()) {
    throw InvalidArgument("data", made ? "made images have no data.path; set data.format"
                                       : "set data.path, where the images are");
  }
  const auto seed = static_cast<std::uint64_t>(config.seed);
  DataSet data;
  data.training =
      open_images(config, config.data.path, p.text("labels"), p.integer("images"), seed);
  if (made || !config.data.validation_path.empty()) {
    data.validation = open_images(config, config.data.validation_path, p.text("validation_labels"),
                                  p.integer("validation_images"), seed + 1);
  }
  data.words = fmt::format("{} images of {}", data.training->size(),
                           made ? std::string("stripes") : config.data.path);
  return data;
}

std::shared_ptr<const DataSource> open_array_source(const std::vector<std::string>& inputs,
                                                    const std::vector<std::string>& targets) {
  const auto open = [](const std::vector<std::string>& names) {
    std::vector<ArrayFile> files;
    for (const std::string& name : names) files.push_back(open_array(name));
    return files;
  };
  return std::make_shared<ArraySource>(open(inputs), open(targets));
}

DataSet open_array_data(const config::Config& config) {
  const config::Values& p = config.data.parameters;
  if (p.texts("inputs").empty() || p.texts("targets").empty()) {
    throw InvalidArgument("data",
                          "set data.inputs and data.targets, e.g. inputs = [\"x.npy\"] and targets "
                          "= [\"y.npy\"]");
  }
  DataSet data;
  data.training = open_array_source(p.texts("inputs"), p.texts("targets"));
  if (!p.texts("validation_inputs").empty())
    data.validation =
        open_array_source(p.texts("validation_inputs"), p.texts("validation_targets"));
  data.words = fmt::format("{} rows of {}", data.training->size(), p.texts("inputs").front());
  return data;
}

}  // namespace

DataSet open_data(const config::Config& config) {
  if (config.data.name == "text") return open_text(config);
  if (config.data.name == "masked_text") return open_masked_text(config);
  if (config.data.name == "images") return open_image_data(config);
  if (config.data.name == "arrays") return open_array_data(config);
  throw InvalidArgument("data", fmt::format("there is no data source '{}'", config.data.name));
}

}  // namespace pipewright::app
