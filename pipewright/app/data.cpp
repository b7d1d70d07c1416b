#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pipewright/app/clicks.h"
#include "pipewright/app/make.h"
#include "pipewright/base/error.h"
#include "pipewright/data/array_source.h"
#include "pipewright/data/image_source.h"
#include "pipewright/data/pair_source.h"
#include "pipewright/data/segment_source.h"
#include "pipewright/data/token_source.h"
#include "pipewright/input/generated_images.h"
#include "pipewright/input/generated_pairs.h"
#include "pipewright/input/sentences.h"
#include "pipewright/input/wordpiece.h"

namespace pipewright::app {
namespace {

/// `made`: the text of a vocab.txt for made data.
std::shared_ptr<const Tokenizer> tokenizer_of(const config::Config& config,
                                              const std::string& vocabulary,
                                              const std::string& made) {
  if (config.data.parameters.text("tokenizer") == "bytes") return std::make_shared<ByteTokenizer>();
  if (!vocabulary.empty()) return std::make_shared<WordPiece>(WordPiece::load(vocabulary));
  if (!config.data.path.empty()) {
    throw InvalidArgument("data",
                          "data.tokenizer = \"wordpiece\" needs data.vocabulary, a vocab.txt");
  }
  return std::make_shared<WordPiece>(made, "the made vocabulary");
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
  const auto tokenizer = tokenizer_of(config, p.text("vocabulary"), sentence_vocabulary());
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

std::shared_ptr<const PairSet> pairs_of(const std::string& source, const std::string& target,
                                        std::int64_t made, std::uint64_t seed) {
  if (source.empty() && target.empty()) return std::make_shared<GeneratedPairs>(made, seed);
  if (source.empty() || target.empty()) {
    throw InvalidArgument(
        "data",
        fmt::format("pairs need two files: '{}' comes without {}", source.empty() ? target : source,
                    source.empty() ? "its source, the path" : "its translations, the target"));
  }
  return std::make_shared<AlignedFiles>(source, target);
}

DataSet open_pairs(const config::Config& config) {
  const config::Values& p = config.data.parameters;
  const std::string& own = p.text("target_vocabulary");
  const auto source = tokenizer_of(config, p.text("vocabulary"), pair_vocabulary());
  const auto target = own.empty() ? source : tokenizer_of(config, own, pair_vocabulary());
  const PairSource::Options lengths = {length_of(config), length_of(config)};
  const auto open = [&](const std::string& path, const std::string& translations, std::int64_t made,
                        std::uint64_t seed) {
    return std::make_shared<PairSource>(pairs_of(path, translations, made, seed), source, target,
                                        lengths);
  };
  const auto seed = static_cast<std::uint64_t>(config.seed);
  const bool made = config.data.path.empty();
  DataSet data;
  const auto training = open(config.data.path, p.text("target"), p.integer("pairs"), seed);
  data.training = training;
  if (made || !config.data.validation_path.empty()) {
    data.validation = open(config.data.validation_path, p.text("validation_target"),
                           p.integer("validation_pairs"), seed + 1);
  }
  data.vocabulary = target->size();
  data.source_vocabulary = source->size();
  data.pad = source->pad();
  data.words = fmt::format("{} made pairs", training->size());
  if (!made) {
    data.words = fmt::format("{}: {}", config.data.path, training->report().text());
    if (data.words.ends_with('\n')) data.words.pop_back();
  }
  return data;
}

/// `path` and `labels` as the format wants them.
std::shared_ptr<const ImageSet> open_images(const config::Config& config, const std::string& path,
                                            const std::string& labels, std::int64_t made,
                                            std::uint64_t seed) {
  const config::Values& p = config.data.parameters;
  const std::string& format = p.text("format");
  if (format == "idx") return std::make_shared<IdxImages>(path, labels);
  if (format == "cifar10") return std::make_shared<CifarImages>(path);
  return std::make_shared<GeneratedImages>(made, static_cast<int>(p.integer("channels")),
                                           static_cast<int>(p.integer("size")), seed);
}

void tell_pictures(const std::array<std::int64_t, 3>& shape, int classes, DataSet* data) {
  data->channels = shape[0];
  data->image = std::min(shape[1], shape[2]);
  data->classes = classes;
}

DataSet open_image_data(const config::Config& config) {
  const config::Values& p = config.data.parameters;
  const bool made = p.text("format") == "made";
  if (made != config.data.path.empty()) {
    throw InvalidArgument("data", made ? "made images have no data.path; set data.format"
                                       : "set data.path, where the images are");
  }
  const auto seed = static_cast<std::uint64_t>(config.seed);
  const auto training =
      open_images(config, config.data.path, p.text("labels"), p.integer("images"), seed);
  DataSet data;
  data.training = std::make_shared<ImageSource>(training);
  tell_pictures(training->shape(), training->classes(), &data);
  if (made || !config.data.validation_path.empty()) {
    data.validation = std::make_shared<ImageSource>(
        open_images(config, config.data.validation_path, p.text("validation_labels"),
                    p.integer("validation_images"), seed + 1));
  }
  data.words = fmt::format("{} images of {}", data.training->size(),
                           made ? std::string("stripes") : config.data.path);
  return data;
}

DataSet open_segments(const config::Config& config) {
  const config::Values& p = config.data.parameters;
  if (!config.data.path.empty())
    throw InvalidArgument("data",
                          "segments are made and have no data.path; use data.name = "
                          "\"arrays\" for pictures of your own");
  const auto make = [&](const char* count, std::uint64_t seed) {
    return std::make_shared<GeneratedSegments>(p.integer(count),
                                               static_cast<int>(p.integer("channels")),
                                               static_cast<int>(p.integer("size")), seed);
  };
  const auto seed = static_cast<std::uint64_t>(config.seed);
  const auto training = make("images", seed);
  DataSet data;
  data.training = std::make_shared<SegmentSource>(training);
  data.validation = std::make_shared<SegmentSource>(make("validation_images", seed + 1));
  tell_pictures(training->shape(), GeneratedSegments::classes(), &data);
  data.words = fmt::format("{} images of discs and squares", training->size());
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
  const std::int64_t first = 0;
  const auto sample = data.training->batch({&first, 1}, 0).inputs.front();
  if (sample.dim() == 4)  // pictures
    tell_pictures({sample.size(1), sample.size(2), sample.size(3)}, 0, &data);
  data.words = fmt::format("{} rows of {}", data.training->size(), p.texts("inputs").front());
  return data;
}

}  // namespace

DataSet open_data(const config::Config& config) {
  if (config.data.name == "text") return open_text(config);
  if (config.data.name == "masked_text") return open_masked_text(config);
  if (config.data.name == "pairs") return open_pairs(config);
  if (config.data.name == "images") return open_image_data(config);
  if (config.data.name == "segments") return open_segments(config);
  if (config.data.name == "arrays") return open_array_data(config);
  if (config.data.name == "clicks") return open_clicks(config);
  throw InvalidArgument("data", fmt::format("there is no data source '{}'", config.data.name));
}

}  // namespace pipewright::app
