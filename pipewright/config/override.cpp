#include "pipewright/config/override.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipewright/config/value.h"

namespace pipewright::config {
namespace {

constexpr std::size_t kMostParts = 8;  // of a key; all that mean something have two at most

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = std::min(text.find(at, start), text.size());
    parts.emplace_back(text.substr(start, end - start));
    if (end == text.size()) return parts;
    start = end + 1;
  }
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

/// The values of `a, b` as TOML has them; empty where that is no TOML. An end mark follows them: if
/// something in the text hid the rest, as a comment does, the mark would not be found.
std::vector<Node> parse_values(const std::string& text) {
  constexpr std::string_view kEndMark = "end of the override";
  if (text.find_first_of("\r\n") != std::string::npos) return {};
  Problems ignored("", {});
  const Node root = parse_toml(fmt::format("v = [{}, \"{}\"]", text, kEndMark), &ignored);
  if (root.children.size() != 1 || root.children[0].kind != Node::Kind::kList) return {};
  std::vector<Node> values = root.children[0].children;
  if (values.empty() || values.back().kind != Node::Kind::kText) return {};
  if (std::get<std::string>(values.back().value) != kEndMark) return {};
  values.pop_back();
  return values;
}

/// A text without quotes. Goes through TOML too: what is no UTF-8 is found there.
std::vector<Node> parse_bare(const std::string& text) { return parse_values(toml_quoted(text)); }

std::vector<Node> parse_bare_list(const std::string& text) {
  std::vector<Node> values;
  for (const std::string& part : split(text, ',')) {
    std::vector<Node> one = parse_values(trimmed(part));
    if (one.size() != 1) one = parse_bare(trimmed(part));
    if (one.size() != 1) return {};
    values.push_back(std::move(one[0]));
  }
  return values;
}

void set_place(const Place& place, Node* node) {
  node->place = place;
  node->key_place = place;
  for (Node& child : node->children) set_place(place, &child);
}

/// False where the text cannot be a value.
bool parse_value(const std::string& text, const Place& place, Node* value) {
  std::vector<Node> values = parse_values(text);
  if (values.empty()) values = parse_bare_list(text);
  if (values.empty()) return false;
  if (values.size() == 1) {
    *value = std::move(values[0]);
  } else {
    value->kind = Node::Kind::kList;
    value->children = std::move(values);
  }
  value->written = text;  // `log.dir=7` means a string: who knows the type will look at this
  set_place(place, value);
  return true;
}

void put(const std::vector<std::string>& path, const Place& place, Node value, Node* root) {
  Node* table = root;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    Node* next = table->child(path[i]);
    if (next == nullptr) {
      Node made;
      made.key = path[i];
      set_place(place, &made);
      next = &table->children.emplace_back(std::move(made));
    }
    if (next->kind != Node::Kind::kTable) return;  // the file's mistake, and told as that
    table = next;
  }
  value.key = path.back();
  Node* old = table->child(path.back());
  if (old == nullptr) old = &table->children.emplace_back();
  *old = std::move(value);
}

}  // namespace

void apply_overrides(const std::vector<std::string>& overrides, Node* root, Problems* problems) {
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const Place place{static_cast<int>(i), 1, 1};
    const std::size_t equals = overrides[i].find('=');
    if (equals == std::string::npos) {
      problems->add(place, "syntax", "no value; write --set section.key=value");
      continue;
    }
    const std::string key = trimmed(std::string_view(overrides[i]).substr(0, equals));
    const std::vector<std::string> path = split(key, '.');
    const bool named = std::all_of(path.begin(), path.end(), [](const std::string& name) {
      return toml_key(name) == name;  // as it stands: letters, digits, _ and -
    });
    Node value;
    if (!named || path.size() > kMostParts) {
      problems->add(place, "syntax",
                    fmt::format("'{}' is no key; write --set section.key=value", key));
    } else if (!parse_value(trimmed(std::string_view(overrides[i]).substr(equals + 1)), place,
                            &value)) {
      problems->add(place, key, "the value is no UTF-8 text; write --set section.key=value");
    } else if (value.kind == Node::Kind::kTable) {
      problems->add(place, key, "the value is a table; set its keys one by one");
    } else {
      put(path, place, std::move(value), root);
    }
  }
}

}  // namespace pipewright::config
