#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pipewright/config/problem.h"

namespace pipewright::config {

/// A TOML document as it stands there, before anybody asks what it means.
struct Node {
  enum class Kind { kFlag, kInteger, kNumber, kText, kDate, kList, kTable };

  Kind kind = Kind::kTable;
  Place place = {};  // of the value
  std::variant<std::monostate, bool, std::int64_t, double, std::string> value = {};
  std::vector<Node> children = {};  // of a list or a table, in the order of the file
  std::string key = {};             // of a table's child
  Place key_place = {};
  std::string written = {};  // of an override: the value's text, before it was read as TOML

  /// A table's child; null where it has none of the name.
  const Node* child(std::string_view name) const;
  Node* child(std::string_view name);
};

/// The root table. What is no TOML, or more than a config can be (see kMostBytes), goes to
/// `problems`; then the table is empty. Safe for any bytes: depth and size are limited.
Node parse_toml(std::string_view text, Problems* problems);

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // of a config

/// Cut where it is too long for a message, never in the middle of a character.
std::string cut(std::string text);

/// A node's value, cut.
std::string shown(const Node& node);

/// `"two" is a string`: the value and what it is in TOML's words.
std::string describe(const Node& node);

}  // namespace pipewright::config
