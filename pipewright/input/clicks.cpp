#include "pipewright/input/clicks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"

namespace pipewright {
namespace {

constexpr std::size_t kMostShownBad = 5;
constexpr std::size_t kMostShownBytes = 40;

/// A column's text for an error, without bytes that would disturb a terminal.
std::string shown(std::string_view text) {
  return fmt::format("{:?}{}", text.substr(0, kMostShownBytes),
                     text.size() > kMostShownBytes ? "..." : "");
}

/// Takes the text up to the next tab off the line.
std::string_view take_column(std::string_view* line) {
  const std::size_t tab = std::min(line->find('\t'), line->size());
  const std::string_view column = line->substr(0, tab);
  line->remove_prefix(std::min(tab + 1, line->size()));
  return column;
}

std::optional<float> parse_number(std::string_view text, bool logarithms) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  if (logarithms) value = std::copysign(std::log1p(std::abs(value)), value);
  const auto number = static_cast<float>(value);
  if (!std::isfinite(number)) return {};
  return number;
}

std::optional<std::string> read_numbers(std::string_view* line, const CriteoOptions& options,
                                        ClickRow* row) {
  for (int i = 0; i < options.numeric; ++i) {
    const std::string_view column = take_column(line);
    float& number = row->numeric[static_cast<std::size_t>(i)];
    number = 0;
    if (column.empty()) continue;
    const auto parsed = parse_number(column, options.logarithms);
    if (!parsed) return fmt::format("column {} is {}, no number", i + 2, shown(column));
    number = *parsed;
  }
  return {};
}

void check_options(const CriteoOptions& options) {
  if (options.numeric < 0 || options.fields < 0 || options.numeric + options.fields == 0) {
    throw InvalidArgument("data", fmt::format("{} numeric and {} categorical columns; there must "
                                              "be at least one",
                                              options.numeric, options.fields));
  }
  if (options.buckets < 2) {
    throw InvalidArgument("data", fmt::format("buckets = {}; use 2 or more: id 0 is for missing "
                                              "values",
                                              options.buckets));
  }
}

}  // namespace

std::int64_t field_id(int field, std::string_view text, std::int64_t buckets) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  }
  const std::uint64_t mixed = seed_from({static_cast<std::uint64_t>(field), hash});
  return 1 + static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(buckets - 1));
}

std::optional<std::string> parse_criteo(std::string_view line, const CriteoOptions& options,
                                        ClickRow* row) {
  const auto wanted = static_cast<std::int64_t>(options.numeric) + options.fields + 1;
  const auto columns = std::count(line.begin(), line.end(), '\t') + 1;
  if (columns != wanted) return fmt::format("{} columns, not {}", columns, wanted);
  const std::string_view label = take_column(&line);
  if (label != "0" && label != "1") return fmt::format("the label is {}, not 0 or 1", shown(label));
  row->label = label == "1" ? 1 : 0;
  row->numeric.resize(static_cast<std::size_t>(options.numeric));
  row->fields.resize(static_cast<std::size_t>(options.fields));
  if (auto why = read_numbers(&line, options, row)) return why;
  for (int i = 0; i < options.fields; ++i) {
    const std::string_view column = take_column(&line);
    row->fields[static_cast<std::size_t>(i)] =
        column.empty() ? 0 : field_id(i, column, options.buckets);
  }
  return {};
}

std::string CriteoReport::text() const {
  if (bad_rows == 0) return fmt::format("{} rows, all good\n", rows);
  std::string words = fmt::format("{} rows; {} bad ones left out:\n", rows, bad_rows);
  for (const BadLine& bad : first_bad) words += fmt::format("  line {}: {}\n", bad.line, bad.why);
  if (bad_rows > static_cast<std::int64_t>(first_bad.size())) words += "  ...\n";
  return words;
}

CriteoFile::CriteoFile(const std::string& path, const CriteoOptions& options,
                       std::optional<std::int64_t> most_bad_rows)
    : options_((check_options(options), options)),
      lines_(path, [this](std::int64_t number, std::string_view line) { look_at(number, line); }) {
  if (report_.rows == 0 && report_.bad_rows == 0) {
    throw InvalidArgument("data", fmt::format("'{}' is empty", path));
  }
  if (report_.rows == 0 || (most_bad_rows && report_.bad_rows > *most_bad_rows)) {
    throw InvalidArgument(
        "data", fmt::format("'{}': {} of {} rows are bad, more than allowed; the first, line {}: "
                            "{}; check the numbers of columns ({} numeric, {} categorical)",
                            path, report_.bad_rows, report_.rows + report_.bad_rows,
                            report_.first_bad.front().line, report_.first_bad.front().why,
                            options_.numeric, options_.fields));
  }
}

void CriteoFile::look_at(std::int64_t number, std::string_view line) {
  const auto why = parse_criteo(line, options_, &scratch_);
  if (!why) {
    ++report_.rows;
    return;
  }
  ++report_.bad_rows;
  bad_lines_.push_back(number);
  if (report_.first_bad.size() < kMostShownBad) report_.first_bad.push_back({number + 1, *why});
}

ClickRow CriteoFile::row(std::int64_t number) const {
  internal_check(number >= 0 && number < size(), "a row that the file does not have");
  // Of the bad lines, the k-th stands before row `number` where at most `number` good ones do.
  std::size_t low = 0;
  std::size_t high = bad_lines_.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (bad_lines_[middle] - static_cast<std::int64_t>(middle) <= number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const std::int64_t line = number + static_cast<std::int64_t>(low);
  ClickRow row;
  if (const auto why = parse_criteo(lines_.line(line), options_, &row)) {
    throw InvalidArgument("data", fmt::format("'{}' line {}: {}; it was good when the file was "
                                              "opened",
                                              lines_.path(), line + 1, *why));
  }
  return row;
}

}  // namespace pipewright
