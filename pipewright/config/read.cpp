#include "pipewright/config/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <set>

#include "pipewright/base/file.h"
#include "pipewright/config/convert.h"
#include "pipewright/config/nearest.h"
#include "pipewright/config/override.h"
#include "pipewright/config/rules.h"
#include "pipewright/config/schema.h"

namespace pipewright::config {
namespace {

std::string path_of(const Section& section, std::string_view key) {
  const std::string shown = cut(toml_key(key));
  return section.name.empty() ? shown : fmt::format("{}.{}", section.name, shown);
}

class Reader {
 public:
  Reader(const Known& known, Problems* problems)
      : known_(known), sections_(schema(known)), problems_(problems) {}

  Config read(const Node& root) {
    for (const Node& child : root.children) {
      const Section& general = sections_.front();
      if (const Setting* setting = general.find(child.key)) {
        read_setting(child, general, *setting);
      } else if (const Section* section = find_section(child.key)) {
        read_section(child, *section);
      } else {
        unknown_at_the_top(child);
      }
    }
    fill_in(find(known_.models, config_.model.name), &config_.model.parameters);
    fill_in(find(known_.data, config_.data.name), &config_.data.parameters);
    check_rules(config_, known_, wrong_, [this](const std::string& key, const std::string& words) {
      problems_->add(Places("", {}, places_).of(key), key, words);
    });
    return config_;
  }

  const std::map<std::string, Place>& places() const { return places_; }

 private:
  const Section* find_section(std::string_view name) const {
    for (const Section& section : sections_) {
      if (!section.name.empty() && section.name == name) return &section;
    }
    return nullptr;
  }

  void read_setting(const Node& node, const Section& section, const Setting& setting) {
    const std::string key = full_name(section, setting);
    places_[key] = node.place;
    if (const auto value = convert(node, setting.option, key, problems_)) {
      setting.set(&config_, *value);
    } else {
      wrong_.insert(key);
    }
  }

  void read_section(const Node& node, const Section& section) {
    places_[section.name] = node.key_place;
    if (node.kind != Node::Kind::kTable) {
      problems_->add(
          node.place, section.name,
          fmt::format("{}; write [{}] once and its keys below", describe(node), section.name));
      // Nothing of it is known: no rule may complain about its keys.
      for (const Setting& setting : section.settings) wrong_.insert(full_name(section, setting));
      return;
    }
    std::vector<const Node*> others;
    for (const Node& child : node.children) {
      if (const Setting* setting = section.find(child.key)) {
        read_setting(child, section, *setting);
      } else {
        others.push_back(&child);
      }
    }
    // After the names that tell what they may be.
    for (const Node* other : others) read_other(*other, section);
  }

  /// A key that the section does not have by itself: a parameter of its model or data source?
  void read_other(const Node& node, const Section& section) {
    const bool model = section.name == "model";
    if (!model && section.name != "data") {
      unknown_key(node, section, {});
      return;
    }
    const std::string& name = model ? config_.model.name : config_.data.name;
    Values* values = model ? &config_.model.parameters : &config_.data.parameters;
    const std::vector<Component>& known = model ? known_.models : known_.data;
    const std::string key = path_of(section, node.key);
    if (name.empty() && model && !config_.model.file.empty()) {
      unknown_key(node, section, {});  // a file has no parameters
    } else if (known.empty()) {
      set(values, node, convert_undeclared(node, key, problems_));
    } else if (const Component* component = find(known, name)) {
      read_parameter(node, section, *component, values);
    }  // else the name is wrong or missing: that is told, and nothing is known of its parameters
  }

  void read_parameter(const Node& node, const Section& section, const Component& component,
                      Values* values) {
    for (const Option& option : component.parameters) {
      if (option.name != node.key) continue;
      set(values, node, convert(node, option, path_of(section, node.key), problems_));
      return;
    }
    unknown_key(node, section, component.parameters);
  }

  static void set(Values* values, const Node& node, const std::optional<Value>& value) {
    if (value) values->set(node.key, *value);
  }

  static void fill_in(const Component* component, Values* values) {
    if (component == nullptr) return;
    for (const Option& option : component->parameters) {
      if (!values->has(option.name)) values->set(option.name, option.fallback);
    }
  }

  void unknown_key(const Node& node, const Section& section,
                   const std::vector<Option>& parameters) {
    std::vector<std::string> names;
    for (const Setting& setting : section.settings) names.push_back(setting.option.name);
    for (const Option& option : parameters) names.push_back(option.name);
    problems_->add(node.key_place, path_of(section, node.key),
                   fmt::format("unknown key; {}", advice(node.key, section.name, names)));
  }

  void unknown_at_the_top(const Node& node) {
    std::vector<std::string> names;
    for (const Section& section : sections_) {
      if (!section.name.empty()) names.push_back(section.name);
    }
    const bool table = node.kind == Node::Kind::kTable;
    if (!table) {
      for (const Setting& setting : sections_.front().settings)
        names.push_back(setting.option.name);
    }
    problems_->add(
        node.key_place, cut(toml_key(node.key)),
        fmt::format("unknown {}; {}", table ? "section" : "key", advice(node.key, "", names)));
  }

  std::string advice(const std::string& key, const std::string& section,
                     const std::vector<std::string>& names) const {
    const std::string near = nearest(key, names);
    if (!near.empty()) return fmt::format("did you mean {}?", near);
    for (const Section& other : sections_) {
      if (other.name != section && other.find(key) != nullptr) {
        return other.name.empty() ? "it belongs above all sections"
                                  : fmt::format("it belongs to [{}]", other.name);
      }
    }
    const std::string whose = section.empty() ? "there are" : fmt::format("[{}] has", section);
    return fmt::format("{} {}", whose, fmt::join(names, ", "));
  }

  const Known& known_;
  std::vector<Section> sections_;
  Problems* problems_;
  Config config_;
  std::map<std::string, Place> places_;  // of keys by full name, and of sections
  std::set<std::string> wrong_;          // full names of keys whose value is not known
};

}  // namespace

Config read_text(std::string_view text, const std::string& file,
                 const std::vector<std::string>& overrides, const Known& known, Places* places) {
  Problems problems(file, overrides);
  Node root = parse_toml(text, &problems);
  const bool parsed = problems.empty();
  apply_overrides(overrides, &root, &problems);
  if (!parsed) problems.refuse();
  Reader reader(known, &problems);
  Config config = reader.read(root);
  problems.refuse();
  if (places != nullptr) *places = {file, overrides, reader.places()};
  return config;
}

Config read(const std::string& path, const std::vector<std::string>& overrides, const Known& known,
            Places* places) {
  return read_text(read_file(path, "config"), path, overrides, known, places);
}

std::string run_folder(const Config& config, const std::string& file) {
  if (!config.log.dir.empty()) return config.log.dir;
  return (std::filesystem::path("runs") / std::filesystem::path(file).stem()).string();
}

}  // namespace pipewright::config
