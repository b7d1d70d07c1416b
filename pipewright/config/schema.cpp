#include "pipewright/config/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "pipewright/base/error.h"
#include "pipewright/config/sections.h"

namespace pipewright::config {
namespace {

Type type_of(const Field& field, bool bytes) {
  if (bytes) return Type::kBytes;
  static constexpr std::array<Type, std::variant_size_v<Field>> kTypes = {
      // as Field has them
      Type::kFlag,     Type::kInteger, Type::kNumber, Type::kText,
      Type::kIntegers, Type::kNumbers, Type::kTexts};
  return kTypes[field.index()];
}

}  // namespace

Section section(const char* name, const char* words, std::vector<Line> lines) {
  Section made{name, words, {}};
  Config defaults;
  for (Line& line : lines) {
    Setting setting;
    setting.field = line.field;
    setting.required = line.required;
    setting.counts = std::move(line.counts);
    Option& option = setting.option;
    option.name = line.name;
    option.type = type_of(line.field(defaults), line.bytes);
    option.fallback = setting.value_in(defaults);
    option.range = line.range;
    option.choices = std::move(line.choices);
    option.length = line.length;
    option.zero = line.zero;
    option.words = std::move(line.words);
    option.misformed = line.misformed;
    made.settings.push_back(std::move(setting));
  }
  return made;
}

Value Setting::value_in(const Config& config) const {
  // A field is found in a Config that could be changed; here it is only read.
  return std::visit([](const auto* held) -> Value { return *held; },
                    field(const_cast<Config&>(config)));
}

void Setting::set(Config* config, const Value& value) const {
  std::visit(
      [&](auto* held) {
        using Held = std::remove_pointer_t<decltype(held)>;
        internal_check(std::holds_alternative<Held>(value), "a key is set to a value of its type");
        *held = std::get<Held>(value);
      },
      field(*config));
}

const Setting* Section::find(std::string_view key) const {
  const auto has_name = [&](const Setting& setting) { return setting.option.name == key; };
  const auto found = std::find_if(settings.begin(), settings.end(), has_name);
  return found == settings.end() ? nullptr : &*found;
}

std::vector<Section> schema(const Known& known) {
  return {general_section(),          model_section(known),    data_section(known),
          train_section(known),       pipeline_section(known), recompute_section(),
          gradient_merge_section(),   amp_section(),           data_parallel_section(),
          auto_micro_batch_section(), checkpoint_section(),    log_section()};
}

std::string full_name(const Section& section, const Setting& setting) {
  return section.name.empty() ? setting.option.name
                              : fmt::format("{}.{}", section.name, setting.option.name);
}

const Setting& setting_of(const std::vector<Section>& sections, std::string_view full_name) {
  const std::size_t dot = full_name.find('.');
  const bool top = dot == std::string_view::npos;
  const std::string_view section_name = top ? "" : full_name.substr(0, dot);
  for (const Section& section : sections) {
    if (section.name != section_name) continue;
    const Setting* found = section.find(top ? full_name : full_name.substr(dot + 1));
    if (found != nullptr) return *found;
  }
  throw InternalError("config", fmt::format("the schema has no '{}'", full_name));
}

std::string condition_words(const Condition& condition, const std::vector<Section>& sections) {
  if (condition.key.empty()) return "";
  if (condition.values.empty()) {
    const Option& other = setting_of(sections, condition.key).option;
    return fmt::format("Only where {} is not {}.", condition.key,
                       option_text(other, other.fallback));
  }
  std::vector<std::string> quoted;
  for (const std::string& value : condition.values) quoted.push_back(toml_quoted(value));
  return fmt::format("Only with {} = {}.", condition.key, fmt::join(quoted, " or "));
}

}  // namespace pipewright::config
