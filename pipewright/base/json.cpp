#include "pipewright/base/json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pipewright/base/error.h"

namespace pipewright {
namespace {

/// Nothing pipewright reads is nested deeper; without a bound, brackets alone could use up the
/// stack.
constexpr int kMostNesting = 32;

void check_nesting(std::string_view text, std::string_view where) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMostNesting) {
      throw InvalidArgument(where,
                            fmt::format("the JSON is nested more than {} deep", kMostNesting));
    }
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  check_nesting(text, where);
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t at = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const std::size_t start = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    const std::size_t column = start == std::string_view::npos ? at + 1 : at - start;
    throw InvalidArgument(where,
                          fmt::format("no JSON: mistake at line {}, column {}", line, column));
  } catch (const nlohmann::json::exception& error) {
    throw InvalidArgument(where, fmt::format("no JSON that can be read: {}", error.what()));
  }
}

JsonObject::JsonObject(const nlohmann::json& value, std::string_view where, std::string path)
    : value_(&value), where_(where), path_(std::move(path)) {
  if (!value.is_object()) {
    throw InvalidArgument(where_, fmt::format("{} is {}, not an object", path_, value.type_name()));
  }
}

void JsonObject::refuse(std::string_view name, std::string_view why) const {
  throw InvalidArgument(where_, fmt::format("{}.{} {}", path_, name, why));
}

void JsonObject::refuse_unknown(std::initializer_list<std::string_view> known) const {
  for (const auto& [name, ignored] : value_->items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    refuse(name.substr(0, 40),
           fmt::format("is no member there; there are {}", fmt::join(known, ", ")));
  }
}

bool JsonObject::has(std::string_view name) const { return value_->contains(name); }

const nlohmann::json& JsonObject::member(std::string_view name) const {
  const auto found = value_->find(name);
  if (found == value_->end()) refuse(name, "is missing");
  return *found;
}

const nlohmann::json& JsonObject::array(std::string_view name) const {
  const auto& value = member(name);
  if (!value.is_array()) refuse(name, fmt::format("is {}, not an array", value.type_name()));
  return value;
}

std::string JsonObject::string(std::string_view name) const {
  const auto& value = member(name);
  if (!value.is_string()) refuse(name, fmt::format("is {}, not a string", value.type_name()));
  return value.get<std::string>();
}

std::string JsonObject::string_or(std::string_view name, std::string_view otherwise) const {
  return has(name) ? string(name) : std::string(otherwise);
}

double JsonObject::non_negative(std::string_view name) const {
  const auto& value = member(name);
  if (!value.is_number()) refuse(name, fmt::format("is {}, not a number", value.type_name()));
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number < 0) {
    refuse(name, fmt::format("is {}, not a finite number of 0 or more", number));
  }
  return number;
}

double JsonObject::non_negative_or(std::string_view name, double otherwise) const {
  return has(name) ? non_negative(name) : otherwise;
}

std::int64_t JsonObject::integer(std::string_view name, std::int64_t least,
                                 std::int64_t most) const {
  return whole_number(member(name), name, least, most);
}

std::vector<std::int64_t> JsonObject::integers(std::string_view name, std::int64_t least,
                                               std::int64_t most) const {
  std::vector<std::int64_t> values;
  for (const auto& value : array(name))
    values.push_back(whole_number(value, fmt::format("{}[{}]", name, values.size()), least, most));
  return values;
}

std::vector<std::string> JsonObject::strings(std::string_view name) const {
  std::vector<std::string> values;
  for (const auto& value : array(name)) {
    if (!value.is_string())
      refuse(fmt::format("{}[{}]", name, values.size()),
             fmt::format("is {}, not a string", value.type_name()));
    values.push_back(value.get<std::string>());
  }
  return values;
}

std::int64_t JsonObject::whole_number(const nlohmann::json& value, std::string_view name,
                                      std::int64_t least, std::int64_t most) const {
  const bool whole = value.is_number_integer() &&
                     (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!whole || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    refuse(name, fmt::format("is not a whole number from {} to {}", least, most));
  }
  return value.get<std::int64_t>();
}

std::int64_t JsonObject::integer_or(std::string_view name, std::int64_t least, std::int64_t most,
                                    std::int64_t otherwise) const {
  return has(name) ? integer(name, least, most) : otherwise;
}

}  // namespace pipewright
