#include "pipewright/app/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/base/json.h"
#include "pipewright/checkpoint/tensor_set.h"
#include "pipewright/models/huggingface.h"

namespace pipewright::app {
namespace {

using nlohmann::json;

constexpr const char* kConfigFile = "config.json";

/// Whether others have names for the weights of this model.
bool has_foreign_names(const config::Config& config) {
  return config.model.name == "gpt" || config.model.name == "bert";
}

NamesInFile foreign_names(const config::Config& config, const std::vector<std::string>& in_file) {
  return config.model.name == "gpt" ? gpt2_names(in_file) : bert_names(in_file);
}

/// GPT-2's token between texts; other vocabularies have none, and Python would take GPT-2's without
/// a word from us.
json end_of_text(std::int64_t vocabulary) {
  constexpr std::int64_t kEndOfText = 50256;
  return vocabulary > kEndOfText ? json(kEndOfText) : json();
}

/// What a config.json says of a model, in its words, with what ours is.
json foreign_config(const config::Config& config, const Trainer& trainer) {
  const config::Values& p = config.model.parameters;
  std::int64_t vocabulary = p.integer("vocab");
  for (const auto& [name, tensor] : trainer.state_dict())
    if (name == "embed.token") vocabulary = tensor.size(0);
  const double dropout = p.number("dropout");
  if (config.model.name == "gpt") {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"n_layer", p.integer("layers")},
            {"n_embd", p.integer("dim")},
            {"n_head", p.integer("heads")},
            {"n_positions", p.integer("seq")},
            {"n_ctx", p.integer("seq")},
            {"vocab_size", vocabulary},
            {"activation_function", p.text("gelu") == "tanh" ? "gelu_new" : "gelu"},
            {"layer_norm_epsilon", 1e-5},
            {"attn_pdrop", dropout},
            {"embd_pdrop", dropout},
            {"resid_pdrop", dropout},
            {"bos_token_id", end_of_text(vocabulary)},
            {"eos_token_id", end_of_text(vocabulary)},
            {"tie_word_embeddings", p.flag("tied")}};
  }
  return {{"architectures", {"BertForMaskedLM"}},
          {"model_type", "bert"},
          {"num_hidden_layers", p.integer("layers")},
          {"hidden_size", p.integer("dim")},
          {"intermediate_size", 4 * p.integer("dim")},
          {"num_attention_heads", p.integer("heads")},
          {"max_position_embeddings", p.integer("seq")},
          {"type_vocab_size", 2},
          {"vocab_size", vocabulary},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", 1e-12},
          {"attention_probs_dropout_prob", dropout},
          {"hidden_dropout_prob", dropout}};
}

/// What the shapes of tensors do not tell, by the word of config.json and the key of ours.
struct Agreement {
  const char* word;
  const char* key;
};

std::vector<Agreement> agreements(const config::Config& config) {
  if (config.model.name == "gpt")
    return {{"n_head", "model.heads"},
            {"activation_function", "model.gelu"},
            {"layer_norm_epsilon", ""}};
  return {{"num_attention_heads", "model.heads"}, {"hidden_act", ""}, {"layer_norm_eps", ""}};
}

/// Both are the same approximation.
json without_synonym(const json& value) {
  return value == "gelu_pytorch_tanh" ? json("gelu_new") : value;
}

void check_config(const std::filesystem::path& path, const config::Config& config,
                  const Trainer& trainer) {
  const json theirs = parse_json(read_file(path.string(), "model"), path.string());
  const json ours = foreign_config(config, trainer);
  for (const auto& [word, key] : agreements(config)) {
    if (!theirs.contains(word) || without_synonym(theirs.at(word)) == ours.at(word)) continue;
    const std::string remedy =
        std::string(key).empty() ? "this model has no other" : fmt::format("set {}", key);
    throw InvalidArgument(
        "model", fmt::format("'{}' says {} = {}, the model has {}; {}", path.string(), word,
                             theirs.at(word).dump(), ours.at(word).dump(), remedy));
  }
}

/// Names of tensors, the first few.
std::string some(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 5;
  const std::size_t count = std::min(kMost, names.size());
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + count, ", "));
  if (names.size() > count) text += fmt::format(" and {} more", names.size() - count);
  return text;
}

bool is_head(const std::string& name) { return name.starts_with("head."); }

}  // namespace

void load_weights(const config::Config& config, Trainer* trainer,
                  const std::function<void(const std::string&)>& note) {
  const std::string& path = config.model.weights;
  if (path.empty()) return;
  const std::vector<std::string> in_file = open_weights(path).names();
  LoadOptions options;
  const bool ours = std::find(in_file.begin(), in_file.end(), "embed.token") != in_file.end();
  if (has_foreign_names(config) && !ours) {
    options.name_in_file = foreign_names(config, in_file);
    options.allow_unexpected = true;  // masks, poolers, other heads
    // A file of BERT's encoder alone: the head learns from its start.
    options.allow_missing = config.model.name == "bert" &&
                            std::none_of(in_file.begin(), in_file.end(),
                                         [](const auto& name) { return name.starts_with("cls."); });
    const auto beside = std::filesystem::path(path) / kConfigFile;
    if (std::filesystem::exists(beside)) check_config(beside, config, *trainer);
  }
  const Loaded loaded = trainer->load_weights(path, options);
  if (!std::all_of(loaded.missing.begin(), loaded.missing.end(), is_head))
    throw InvalidArgument("model", fmt::format("'{}' does not have all weights of the model; "
                                               "missing: {}",
                                               path, some(loaded.missing)));
  if (!note) return;
  note(fmt::format("starts from the weights in {}", path));
  if (!loaded.missing.empty())
    note(fmt::format("not in the file, start as drawn: {}", some(loaded.missing)));
  if (!loaded.unexpected.empty())
    note(fmt::format("in the file, but not of the model: {}", some(loaded.unexpected)));
}

void check_export(const config::Config& config) {
  const std::string& path = config.model.export_to;
  if (path.empty() || !std::filesystem::exists(path)) return;
  throw InvalidArgument(
      "model", fmt::format("model.export_to = '{}' is there already; name a new folder", path));
}

void export_weights(const config::Config& config, Trainer* trainer, bool first) {
  const std::string& path = config.model.export_to;
  if (path.empty()) return;
  const bool foreign = has_foreign_names(config);
  trainer->save_weights(path, foreign ? foreign_names(config, {}) : NamesInFile());
  if (!first || !foreign) return;
  write_file((std::filesystem::path(path) / kConfigFile).string(),
             foreign_config(config, *trainer).dump(2) + "\n", "model");
}

}  // namespace pipewright::app
