#include "pipewright/config/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "pipewright/base/units.h"
#include "pipewright/config/nearest.h"

namespace pipewright::config {
namespace {

using Kind = Node::Kind;

bool from_override(const Node& node) { return node.place.override_number >= 0; }

/// One value, or one element of a list. Each function gives none where it has told a problem.
class Converter {
 public:
  Converter(const Option& option, std::string key, Problems* problems)
      : option_(option), key_(std::move(key)), problems_(problems) {}

  std::optional<bool> flag(const Node& node) const {
    if (const auto* value = std::get_if<bool>(&node.value)) return *value;
    return other_type(node);
  }

  std::optional<std::int64_t> integer(const Node& node) const {
    const auto* word = std::get_if<std::string>(&node.value);
    if (word != nullptr && !option_.zero.empty() && *word == option_.zero) return 0;
    const auto* value = std::get_if<std::int64_t>(&node.value);
    if (value == nullptr) return other_type(node);
    if (!option_.range.has(static_cast<double>(*value))) return out_of_range(node);
    return *value;
  }

  std::optional<std::int64_t> bytes(const Node& node) const {
    const auto* text = std::get_if<std::string>(&node.value);
    if (text == nullptr) return integer(node);
    try {
      const std::int64_t value = parse_bytes(*text, key_);
      if (!option_.range.has(static_cast<double>(value))) return out_of_range(node);
      return value;
    } catch (const InvalidArgument&) {
      return tell(node, fmt::format("{} and no number of bytes; write {}", describe(node),
                                    wanted_element(option_)));
    }
  }

  std::optional<double> number(const Node& node) const {
    double value = 0;
    if (const auto* whole = std::get_if<std::int64_t>(&node.value)) {
      value = static_cast<double>(*whole);
    } else if (const auto* number = std::get_if<double>(&node.value)) {
      value = *number;
    } else {
      return other_type(node);
    }
    if (!option_.range.has(value)) return out_of_range(node);
    return value;
  }

  std::optional<std::string> text(const Node& node) const {
    const auto* held = std::get_if<std::string>(&node.value);
    // In an override quotes are not needed: dir=7 means the string.
    if (held == nullptr && from_override(node) && !node.written.empty()) held = &node.written;
    if (held == nullptr) return other_type(node);
    const auto* fallback = std::get_if<std::string>(&option_.fallback);
    const bool may_be_empty = fallback != nullptr && fallback->empty();
    if (held->empty() && may_be_empty) return *held;
    if (held->empty()) return tell(node, "\"\" is empty; write " + wanted_element(option_));
    if (!option_.choices.empty() && !is_choice(*held)) return no_choice(node, *held);
    const std::string wrong = option_.misformed == nullptr ? "" : option_.misformed(*held);
    if (!wrong.empty()) return tell(node, fmt::format("{} {}", cut(toml_quoted(*held)), wrong));
    return *held;
  }

 private:
  bool is_choice(const std::string& text) const {
    return std::any_of(option_.choices.begin(), option_.choices.end(),
                       [&](const Choice& choice) { return choice.name == text; });
  }

  std::nullopt_t tell(const Node& node, const std::string& words) const {
    problems_->add(node.place, key_, words);
    return std::nullopt;
  }

  std::nullopt_t other_type(const Node& node) const {
    const auto* number = std::get_if<double>(&node.value);
    const bool whole = number != nullptr && *number == std::trunc(*number) &&
                       std::abs(*number) < 0x1p53 && option_.range.has(*number);
    if (whole && option_.type != Type::kText && option_.type != Type::kFlag) {
      return tell(node,
                  fmt::format("{} is written with a fraction; write {:.0f}", shown(node), *number));
    }
    return tell(node, fmt::format("{}; write {}", describe(node), wanted_element(option_)));
  }

  std::nullopt_t out_of_range(const Node& node) const {
    return tell(node,
                fmt::format("{} is out of range; write {}", shown(node), wanted_element(option_)));
  }

  std::nullopt_t no_choice(const Node& node, const std::string& text) const {
    std::vector<std::string> names;
    for (const Choice& choice : option_.choices) names.push_back(choice.name);
    const std::string near = nearest(text, names);
    const std::string advice = near.empty() ? "write " + wanted_element(option_)
                                            : fmt::format("did you mean {}?", toml_quoted(near));
    return tell(node, fmt::format("there is no {}; {}", cut(toml_quoted(text)), advice));
  }

  const Option& option_;
  std::string key_;
  Problems* problems_;
};

template <typename Element>
std::optional<Value> as_value(const std::optional<Element>& value) {
  if (!value) return std::nullopt;
  return Value(*value);
}

template <typename Element>
std::optional<Value> convert_list(const Node& node, const Option& option, const std::string& key,
                                  Problems* problems,
                                  std::optional<Element> (Converter::*convert_one)(const Node&)
                                      const) {
  std::vector<Node> elements = node.children;
  if (node.kind != Kind::kList) elements = {node};  // of an override: a list of one
  const bool fits = node.kind == Kind::kList || (from_override(node) && node.kind != Kind::kTable);
  const bool right_length = option.length == 0 || elements.size() == option.length;
  if (!fits || !right_length) {
    const std::string count = fits ? fmt::format(" of {}", elements.size()) : "";
    problems->add(node.place, key,
                  fmt::format("{}{}; write {}", describe(node), count, wanted(option)));
    return std::nullopt;
  }
  std::vector<Element> list;
  bool whole = true;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const Converter converter(option, fmt::format("{}[{}]", key, i), problems);
    const std::optional<Element> element = (converter.*convert_one)(elements[i]);
    whole = whole && element.has_value();
    if (element) list.push_back(*element);
  }
  if (!whole) return std::nullopt;
  return Value(std::move(list));
}

Option undeclared(const Node& node) {
  Option option;
  switch (node.kind) {
    case Kind::kFlag: option.type = Type::kFlag; break;
    case Kind::kInteger: option.type = Type::kInteger; break;
    case Kind::kNumber: option.type = Type::kNumber; break;
    default: option.type = Type::kText; break;
  }
  option.fallback = std::string();
  return option;
}

}  // namespace

std::optional<Value> convert(const Node& node, const Option& option, const std::string& key,
                             Problems* problems) {
  const Converter converter(option, key, problems);
  switch (option.type) {
    case Type::kFlag: return as_value(converter.flag(node));
    case Type::kInteger: return as_value(converter.integer(node));
    case Type::kBytes: return as_value(converter.bytes(node));
    case Type::kNumber: return as_value(converter.number(node));
    case Type::kText: return as_value(converter.text(node));
    case Type::kIntegers:
      return convert_list<std::int64_t>(node, option, key, problems, &Converter::integer);
    case Type::kNumbers:
      return convert_list<double>(node, option, key, problems, &Converter::number);
    case Type::kTexts:
      return convert_list<std::string>(node, option, key, problems, &Converter::text);
  }
  return std::nullopt;
}

std::optional<Value> convert_undeclared(const Node& node, const std::string& key,
                                        Problems* problems) {
  if (node.kind != Kind::kList) {
    // Tables and dates fail as the strings that they are not.
    Node plain = node;
    plain.written.clear();
    return convert(plain, undeclared(node), key, problems);
  }
  Option option = undeclared(node.children.empty() ? Node{} : node.children[0]);
  const bool fractions = std::any_of(node.children.begin(), node.children.end(),
                                     [](const Node& one) { return one.kind == Kind::kNumber; });
  if (node.children.empty() || (option.type == Type::kInteger && !fractions)) {
    option.type = Type::kIntegers;
  } else if (option.type == Type::kInteger || option.type == Type::kNumber) {
    option.type = Type::kNumbers;
  } else {
    option.type = Type::kTexts;
  }
  return convert(node, option, key, problems);
}

}  // namespace pipewright::config
