#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pipewright/config/config.h"
#include "pipewright/config/known.h"
#include "pipewright/config/option.h"

namespace pipewright::config {

/// Where a Config holds the value of a key.
using Field = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*,
                           std::vector<double>*, std::vector<std::string>*>;

/// When a key counts: where another one has one of these values; without values, where it differs
/// from its default. A key that is set where it does not count is refused.
struct Condition {
  std::string key = {};  // with its section; empty: always
  std::vector<std::string> values = {};
};

/// A key of a section.
struct Setting {
  Option option;
  Field (*field)(Config& config) = nullptr;
  bool required = false;
  Condition counts = {};

  Value value_in(const Config& config) const;
  void set(Config* config, const Value& value) const;
};

struct Section {
  std::string name;  // empty: the keys above all sections
  std::string words;
  std::vector<Setting> settings;

  const Setting* find(std::string_view key) const;
};

/// All sections with all their keys, in the order in which people read them. The one list of them:
/// types and defaults are those of Config. The parameters of models and data sources are not among
/// them. `known` fills in the names of models, data sources, schedules and losses.
std::vector<Section> schema(const Known& known);

/// `pipeline.ranks`; a key above all sections by its name alone.
std::string full_name(const Section& section, const Setting& setting);

/// By its full name; it must be there.
const Setting& setting_of(const std::vector<Section>& sections, std::string_view full_name);

/// "Only with recompute.mode = "every"." of a key that does not always count; else empty.
std::string condition_words(const Condition& condition, const std::vector<Section>& sections);

}  // namespace pipewright::config
