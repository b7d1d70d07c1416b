#include "pipewright/config/option.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

namespace pipewright::config {
namespace {

constexpr double kMostCount = 1 << 20;

std::string range_words(const Range& range) {
  const bool has_least = std::isfinite(range.least);
  const bool has_most = std::isfinite(range.most);
  if (!has_least && !has_most) return "";
  if (has_least && !has_most) {
    return range.above_least ? fmt::format(" above {}", range.least)
                             : fmt::format(", {} or more", range.least);
  }
  const std::string end = fmt::format("{}{}", range.below_most ? "below " : "", range.most);
  if (!has_least) return fmt::format(" up to {}", end);
  return range.above_least ? fmt::format(" above {}, up to {}", range.least, end)
                           : fmt::format(" from {} to {}", range.least, end);
}

std::string choices_words(const std::vector<Choice>& choices) {
  std::string names;
  for (const Choice& choice : choices) {
    if (!names.empty()) names += ", ";
    names += toml_quoted(choice.name);
  }
  return "one of " + names;
}

std::string bytes_text(std::int64_t bytes) {
  static constexpr std::array<std::pair<const char*, std::int64_t>, 4> kUnits = {
      {{"TiB", std::int64_t{1} << 40},
       {"GiB", std::int64_t{1} << 30},
       {"MiB", std::int64_t{1} << 20},
       {"KiB", std::int64_t{1} << 10}}};
  for (const auto& [name, size] : kUnits) {
    // Beyond that, number and unit are multiplied as doubles when they are read.
    const bool exact = bytes < std::int64_t{1} << 53;
    if (bytes != 0 && exact && bytes % size == 0)
      return fmt::format("\"{}{}\"", bytes / size, name);
  }
  return fmt::format("{}", bytes);
}

Option declared(std::string name, Type type, Value fallback, std::string words) {
  Option option;
  option.name = std::move(name);
  option.type = type;
  option.fallback = std::move(fallback);
  option.words = std::move(words);
  return option;
}

}  // namespace

bool Range::has(double value) const {
  if (!std::isfinite(value)) return false;
  if (above_least ? !(value > least) : !(value >= least)) return false;
  return below_most ? value < most : value <= most;
}

Range at_least(double least, double most) { return {least, most, false, false, false}; }
Range count(double least) { return {least, kMostCount, false, false, true}; }
Range above(double least, double most) { return {least, most, true, false, false}; }
Range from_to_below(double least, double most) { return {least, most, false, true, false}; }

Option flag(std::string name, bool fallback, std::string words) {
  return declared(std::move(name), Type::kFlag, fallback, std::move(words));
}

Option integer(std::string name, std::int64_t fallback, Range range, std::string words) {
  Option option = declared(std::move(name), Type::kInteger, fallback, std::move(words));
  option.range = range;
  return option;
}

Option bytes(std::string name, std::int64_t fallback, Range range, std::string words) {
  Option option = declared(std::move(name), Type::kBytes, fallback, std::move(words));
  option.range = range;
  return option;
}

Option number(std::string name, double fallback, Range range, std::string words) {
  Option option = declared(std::move(name), Type::kNumber, fallback, std::move(words));
  option.range = range;
  return option;
}

Option text(std::string name, std::string fallback, std::string words) {
  return declared(std::move(name), Type::kText, std::move(fallback), std::move(words));
}

Option choice(std::string name, std::string fallback, std::vector<Choice> choices,
              std::string words) {
  Option option = declared(std::move(name), Type::kText, std::move(fallback), std::move(words));
  option.choices = std::move(choices);
  return option;
}

std::string wanted_element(const Option& option) {
  switch (option.type) {
    case Type::kFlag: return "true or false";
    case Type::kInteger:
    case Type::kIntegers:
      return "a whole number" + range_words(option.range) +
             (option.zero.empty() ? "" : ", or " + toml_quoted(option.zero));
    case Type::kBytes: return "bytes such as 1048576 or \"8GiB\"" + range_words(option.range);
    case Type::kNumber:
    case Type::kNumbers: return "a number" + range_words(option.range);
    case Type::kText:
    case Type::kTexts: return option.choices.empty() ? "a string" : choices_words(option.choices);
  }
  return "";
}

std::string wanted(const Option& option) {
  const std::string count = option.length == 0 ? "" : fmt::format("{} ", option.length);
  switch (option.type) {
    case Type::kIntegers:
      return fmt::format("a list of {}whole numbers{}", count, range_words(option.range));
    case Type::kNumbers:
      return fmt::format("a list of {}numbers{}", count, range_words(option.range));
    case Type::kTexts: return fmt::format("a list of {}strings", count);
    default: break;
  }
  return wanted_element(option);
}

std::string usually_wanted(Option option) {
  if (option.range.plausible) option.range.most = std::numeric_limits<double>::infinity();
  return wanted(option);
}

std::string option_text(const Option& option, const Value& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (whole != nullptr && *whole == 0 && !option.zero.empty()) return toml_quoted(option.zero);
  if (whole != nullptr && option.type == Type::kBytes) return bytes_text(*whole);
  return toml_text(value);
}

}  // namespace pipewright::config
