#include "pipewright/models/huggingface.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace pipewright {
namespace {

bool any_of(const std::vector<std::string>& names, std::string_view text) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.find(text) != std::string::npos; });
}

bool any_starts(const std::vector<std::string>& names, std::string_view start) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(start); });
}

/// A tensor's name of ours: "block12.norm1.weight" is {"block", "12", "norm1", "weight"}.
struct OurName {
  std::string layer;
  std::string number;  // empty: there is one such layer
  std::string module;  // within the layer; empty: none
  std::string tensor;

  explicit OurName(const std::string& name) {
    const auto dot = name.find('.');
    const auto last = name.rfind('.');
    layer = name.substr(0, dot);
    const auto digits = layer.find_last_not_of("0123456789") + 1;
    number = layer.substr(digits);
    layer.resize(digits);
    if (last == std::string::npos) return;
    tensor = name.substr(last + 1);
    if (last > dot) module = name.substr(dot + 1, last - dot - 1);
  }
};

using Table = std::map<std::string, std::string>;

const std::string* find(const Table& table, const std::string& key) {
  const auto found = table.find(key);
  return found == table.end() ? nullptr : &found->second;
}

NameInFile gpt2_name(const std::string& name, const std::string& prefix) {
  static const Table kWhole = {{"embed.token", "wte.weight"},
                               {"embed.position", "wpe.weight"},
                               {"norm.weight", "ln_f.weight"},
                               {"norm.bias", "ln_f.bias"}};
  static const Table kModules = {{"norm1", "ln_1"}, {"qkv", "attn.c_attn"}, {"proj", "attn.c_proj"},
                                 {"norm2", "ln_2"}, {"up", "mlp.c_fc"},     {"down", "mlp.c_proj"}};
  if (name == "head.weight") return std::string("lm_head.weight");
  if (const std::string* whole = find(kWhole, name)) return prefix + *whole;
  const OurName ours(name);
  const std::string* module = find(kModules, ours.module);
  if (ours.layer != "block" || module == nullptr) return {};
  const bool is_matrix = ours.tensor == "weight" && !ours.module.starts_with("norm");
  return {{prefix + "h." + ours.number + "." + *module + "." + ours.tensor}, is_matrix};
}

/// How a file of BERT's writes what has been written differently.
struct BertStyle {
  std::string prefix = "bert.";
  bool gamma_beta = false;
  std::string head_bias = "cls.predictions.bias";

  std::string norm(const std::string& tensor) const {
    if (!gamma_beta) return tensor;
    return tensor == "weight" ? "gamma" : "beta";
  }
};

NameInFile bert_name(const std::string& name, const BertStyle& style) {
  static const Table kTables = {{"embed.token", "embeddings.word_embeddings.weight"},
                                {"embed.position", "embeddings.position_embeddings.weight"},
                                {"embed.segment", "embeddings.token_type_embeddings.weight"}};
  static const Table kModules = {{"attention.proj", "attention.output.dense"},
                                 {"attention.norm", "attention.output.LayerNorm"},
                                 {"up.up", "intermediate.dense"},
                                 {"down.down", "output.dense"},
                                 {"down.norm", "output.LayerNorm"}};
  if (const std::string* table = find(kTables, name)) return style.prefix + *table;
  if (name == "head.weight") return std::string("cls.predictions.decoder.weight");
  if (name == "head.bias") return style.head_bias;
  const OurName ours(name);
  const std::string tensor = ours.module == "norm" ? style.norm(ours.tensor) : ours.tensor;
  if (ours.layer == "embed" && ours.module == "norm")
    return style.prefix + "embeddings.LayerNorm." + tensor;
  if (ours.layer == "head") {
    const std::string transform = "cls.predictions.transform.";
    if (ours.module == "transform") return transform + "dense." + tensor;
    return ours.module == "norm" ? NameInFile(transform + "LayerNorm." + tensor) : NameInFile();
  }
  const std::string block = style.prefix + "encoder.layer." + ours.number + ".";
  if (ours.layer == "attention" && ours.module == "qkv") {
    const std::string self = block + "attention.self.";
    return {{self + "query." + tensor, self + "key." + tensor, self + "value." + tensor}, false};
  }
  const std::string* module = find(kModules, ours.layer + "." + ours.module);
  return module == nullptr ? NameInFile() : NameInFile(block + *module + "." + tensor);
}

}  // namespace

NamesInFile gpt2_names(const std::vector<std::string>& in_file) {
  const bool bare = !in_file.empty() && !any_starts(in_file, "transformer.");
  return [prefix = std::string(bare ? "" : "transformer.")](const std::string& name) {
    return gpt2_name(name, prefix);
  };
}

NamesInFile bert_names(const std::vector<std::string>& in_file) {
  BertStyle style;
  if (!in_file.empty() && !any_starts(in_file, "bert.")) style.prefix.clear();
  style.gamma_beta = any_of(in_file, "LayerNorm.gamma");
  const bool has_bias = std::find(in_file.begin(), in_file.end(), style.head_bias) != in_file.end();
  if (!has_bias && any_of(in_file, "cls.predictions.decoder.bias"))
    style.head_bias = "cls.predictions.decoder.bias";
  return [style](const std::string& name) { return bert_name(name, style); };
}

}  // namespace pipewright
