#include "pipewright/config/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "pipewright/config/schema.h"

namespace pipewright::config {
namespace {

constexpr std::size_t kWidth = 100;  // columns

/// The words as comments, broken between words where a line would be too long.
std::string comment(const std::string& words) {
  std::string lines;
  std::string line = "#";
  std::size_t start = 0;
  while (start < words.size()) {
    const std::size_t end = std::min(words.find(' ', start), words.size());
    const std::string word = words.substr(start, end - start);
    if (line.size() + 1 + word.size() > kWidth) {
      lines += line + "\n";
      line = "#";
    }
    line += " " + word;
    start = end + 1;
  }
  return lines + line + "\n";
}

std::string choices_words(const Option& option) {
  std::string words;
  for (const Choice& choice : option.choices) {
    words += words.empty() ? "" : "; ";
    words += toml_quoted(choice.name);
    std::string meaning = choice.words;
    if (meaning.ends_with('.')) meaning.pop_back();  // it is a part of a sentence here
    if (!meaning.empty()) words += ": " + meaning;
  }
  return words;
}

std::string choices_lines(const Option& option) {
  std::size_t width = 0;
  for (const Choice& choice : option.choices) width = std::max(width, choice.name.size());
  std::string lines;
  for (const Choice& choice : option.choices) {
    std::string line =
        fmt::format("#   {:{}}  {}", toml_quoted(choice.name), width + 2, choice.words);
    line.erase(line.find_last_not_of(' ') + 1);
    lines += line + "\n";
  }
  return lines;
}

/// What may be written, as a sentence of its own; empty where the default shows it.
std::string value_sentence(const Option& option) {
  const bool bounded = option.type != Type::kFlag && option.type != Type::kText;
  if (!bounded) return "";
  std::string words = usually_wanted(option);
  words[0] = words[0] == 'a' ? 'A' : words[0] == 'b' ? 'B' : words[0];
  return " " + words + ".";
}

std::string explained(const Option& option, const std::string& condition) {
  return "\n" + comment(option.words + value_sentence(option)) +
         (condition.empty() ? "" : comment(condition)) + choices_lines(option);
}

std::string key_line(const Option& option, const Value& value, bool as_comment) {
  return fmt::format("{}{} = {}\n", as_comment ? "# " : "", toml_key(option.name),
                     option_text(option, value));
}

const Values* parameters_of(const Section& section, const Config& config) {
  if (section.name == "model") return &config.model.parameters;
  return section.name == "data" ? &config.data.parameters : nullptr;
}

std::string header(const Section& section) {
  return section.name.empty() ? "" : fmt::format("\n[{}]\n", section.name);
}

/// The parameters under their sentences; those that nobody declares as they are.
std::string commented_parameters(const Values& values, const Component* component) {
  std::string text;
  std::set<std::string> declared;
  for (const Option& option :
       component == nullptr ? std::vector<Option>() : component->parameters) {
    declared.insert(option.name);
    const auto held = values.all().find(option.name);
    if (held == values.all().end()) continue;
    text += explained(option, "") + key_line(option, held->second, held->second == option.fallback);
  }
  for (const auto& [name, value] : values.all()) {
    if (!declared.contains(name))
      text += fmt::format("{} = {}\n", toml_key(name), toml_text(value));
  }
  return text;
}

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.insert(at, "\\");
  return text;
}

std::string reference_row(const Setting& setting, const std::vector<Section>& sections) {
  const Option& option = setting.option;
  std::string words = option.words;
  const std::string condition = condition_words(setting.counts, sections);
  if (!condition.empty()) words += " " + condition;
  if (!option.choices.empty()) words += " " + choices_words(option) + ".";
  const std::string fallback =
      setting.required ? "must be set" : "`" + option_text(option, option.fallback) + "`";
  const std::string type = option.choices.empty() ? usually_wanted(option) : "a string";
  return fmt::format("| `{}` | {} | {} | {} |\n", option.name, cell(type), cell(fallback),
                     cell(words));
}

}  // namespace

std::string to_toml(const Config& config) {
  std::string text;
  for (const Section& section : schema({})) {
    text += header(section);
    for (const Setting& setting : section.settings)
      text += key_line(setting.option, setting.value_in(config), false);
    const Values* parameters = parameters_of(section, config);
    if (parameters == nullptr) continue;
    for (const auto& [name, value] : parameters->all())
      text += fmt::format("{} = {}\n", toml_key(name), toml_text(value));
  }
  return text;
}

std::string commented_toml(const Config& config, const Known& known, const std::string& title) {
  std::string text = comment(title) + "#\n" +
                     comment(
                         "Keys that are commented out stand there with their defaults. "
                         "`--set section.key=value` overrides any key.");
  const std::vector<Section> sections = schema(known);
  for (const Section& section : sections) {
    text += header(section) + (section.name.empty() ? "" : comment(section.words));
    for (const Setting& setting : section.settings) {
      const Value value = setting.value_in(config);
      text += explained(setting.option, condition_words(setting.counts, sections)) +
              key_line(setting.option, value, value == setting.option.fallback);
    }
    if (section.name == "model")
      text += commented_parameters(config.model.parameters, find(known.models, config.model.name));
    if (section.name == "data")
      text += commented_parameters(config.data.parameters, find(known.data, config.data.name));
  }
  return text;
}

std::string reference_page(const Known& known) {
  std::string text =
      "# The configuration\n\n"
      "All keys of a config file, which is [TOML](https://toml.io). This page is made by "
      "`pipewright init --reference`.\n\n"
      "- `pipewright init NAME` writes a file with all keys, explained, the defaults commented "
      "out.\n"
      "- `--set section.key=value` overrides a key; strings need no quotes, lists no brackets. The "
      "last one of several counts.\n"
      "- Everything that is wrong is told at once, each with its line, before anything starts: "
      "unknown keys, wrong types, values out\n"
      "  of range, and keys that have no effect beside others.\n"
      "- Bytes are a whole number or a string with a unit: `\"512MiB\"`, `\"8GiB\"`, "
      "`\"1.5GB\"`.\n";
  const std::vector<Section> sections = schema(known);
  for (const Section& section : sections) {
    text += section.name.empty() ? "\n## Above all sections\n\n"
                                 : fmt::format("\n## [{}]\n\n{}\n\n", section.name, section.words);
    text += "| key | what to write | default | what it is |\n|---|---|---|---|\n";
    for (const Setting& setting : section.settings) text += reference_row(setting, sections);
  }
  return text;
}

}  // namespace pipewright::config
