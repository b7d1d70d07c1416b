#include "pipewright/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pipewright/base/error.h"

namespace pipewright::config {
namespace {

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);  // the shortest that reads back as the same number
  const bool whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return whole ? text + ".0" : text;
}

std::string element_text(bool value) { return value ? "true" : "false"; }
std::string element_text(std::int64_t value) { return fmt::format("{}", value); }
std::string element_text(double value) { return number_text(value); }
std::string element_text(const std::string& value) { return toml_quoted(value); }

template <typename Element>
std::string element_text(const std::vector<Element>& list) {
  std::string text = "[";
  for (const Element& element : list) {
    if (text.size() > 1) text += ", ";
    text += element_text(element);
  }
  return text + "]";
}

template <typename Wanted>
const Wanted& as(const Value& value) {
  internal_check(std::holds_alternative<Wanted>(value),
                 "a parameter is asked for as the type it has");
  return std::get<Wanted>(value);
}

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

}  // namespace

void Values::set(const std::string& name, Value value) {
  values_.insert_or_assign(name, std::move(value));
}

const Value& Values::at(std::string_view name) const {
  const auto found = values_.find(name);
  internal_check(found != values_.end(), "a parameter that is asked for was declared");
  return found->second;
}

bool Values::flag(std::string_view name) const { return as<bool>(at(name)); }
std::int64_t Values::integer(std::string_view name) const { return as<std::int64_t>(at(name)); }
const std::string& Values::text(std::string_view name) const { return as<std::string>(at(name)); }

double Values::number(std::string_view name) const {
  const Value& value = at(name);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return as<double>(value);
}

const std::vector<std::int64_t>& Values::integers(std::string_view name) const {
  return as<std::vector<std::int64_t>>(at(name));
}

std::vector<double> Values::numbers(std::string_view name) const {
  const Value& value = at(name);
  if (const auto* whole = std::get_if<std::vector<std::int64_t>>(&value)) {
    return {whole->begin(), whole->end()};
  }
  return as<std::vector<double>>(value);
}

const std::vector<std::string>& Values::texts(std::string_view name) const {
  return as<std::vector<std::string>>(at(name));
}

std::string toml_text(const Value& value) {
  return std::visit([](const auto& held) { return element_text(held); }, value);
}

std::string toml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string toml_key(std::string_view name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), is_bare);
  return bare ? std::string(name) : toml_quoted(name);
}

}  // namespace pipewright::config
