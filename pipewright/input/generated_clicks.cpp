#include "pipewright/input/generated_clicks.h"

#include <fmt/format.h>

#include <cmath>

#include "pipewright/base/error.h"
#include "pipewright/input/draw.h"
#include "pipewright/input/permutation.h"

namespace pipewright {
namespace {

constexpr double kTogether = 2;  // what a pair of fields adds or takes away
constexpr double kSingle = 0.5;  // what the last field does by itself, and the first number

/// From 0 to 1, a half at 0; a logistic curve's shape without an exponential, whose last bits
/// differ by machine.
double squash(double x) { return 0.5 * (1 + x / (1 + std::abs(x))); }

void check_options(const ClickLogOptions& options) {
  const bool sizes = options.rows >= 1 && options.numeric >= 1 && options.interactions >= 0 &&
                     options.fields >= 2 * options.interactions + 1 && options.first_row >= 0;
  if (!sizes) {
    throw InvalidArgument(
        "data",
        fmt::format("a click log of {} rows with {} numbers, {} fields and {} interactions; "
                    "it needs a row, a number, and a field more than two an interaction",
                    options.rows, options.numeric, options.fields, options.interactions));
  }
  if (options.values < 2 || options.values % 2 != 0) {
    throw InvalidArgument("data", fmt::format("values = {}; use an even number: half of a field's "
                                              "values are good",
                                              options.values));
  }
  if (!(options.missing >= 0 && options.missing < 1)) {
    throw InvalidArgument("data",
                          fmt::format("missing = {}; use a share below 1", options.missing));
  }
}

}  // namespace

GeneratedClicks::GeneratedClicks(const ClickLogOptions& options) : options_(options) {
  check_options(options);
  for (int field = 0; field < options.fields; ++field) {
    const Permutation order(options.values,
                            seed_from({options.seed, 0, static_cast<std::uint64_t>(field)}));
    std::vector<int> by_value = {0};  // missing
    for (std::int64_t i = 0; i < options.values; ++i) {
      by_value.push_back(order.at(i) % 2 == 0 ? 1 : -1);
    }
    goodness_.push_back(std::move(by_value));
  }
}

int GeneratedClicks::goodness(int field, std::int64_t value) const {
  return goodness_[static_cast<std::size_t>(field)][static_cast<std::size_t>(value)];
}

double GeneratedClicks::single_part(const ClickRow& row) const {
  return kSingle * (static_cast<double>(row.numeric.front()) +
                    goodness(options_.fields - 1, row.fields.back()));
}

double GeneratedClicks::together_part(const ClickRow& row) const {
  double sum = 0;
  for (int i = 0; i < options_.interactions; ++i) {
    const auto first = static_cast<std::size_t>(2 * i);
    sum +=
        kTogether * goodness(2 * i, row.fields[first]) * goodness(2 * i + 1, row.fields[first + 1]);
  }
  return sum;
}

double GeneratedClicks::probability(const ClickRow& row) const {
  return squash(single_part(row) + together_part(row));
}

double GeneratedClicks::probability_without_interactions(const ClickRow& row) const {
  return squash(single_part(row));
}

ClickRow GeneratedClicks::row(std::int64_t number) const {
  internal_check(number >= 0 && number < size(), "a row that the log does not have");
  Draw draw(seed_from({options_.seed, 1, static_cast<std::uint64_t>(options_.first_row + number)}));
  ClickRow row;
  for (int i = 0; i < options_.numeric; ++i) {
    const double value = draw.bell();
    row.numeric.push_back(draw.chance(options_.missing) ? 0 : static_cast<float>(value));
  }
  for (int i = 0; i < options_.fields; ++i) {
    const std::int64_t value = 1 + draw.index(options_.values);
    row.fields.push_back(draw.chance(options_.missing) ? 0 : value);
  }
  row.label = draw.chance(probability(row)) ? 1 : 0;
  return row;
}

std::string GeneratedClicks::tsv_line(std::int64_t number) const {
  const ClickRow clicks = row(number);
  std::string line = clicks.label > 0 ? "1" : "0";
  for (const float value : clicks.numeric) {
    line += value == 0 ? "\t" : fmt::format("\t{}", value);
  }
  for (const std::int64_t value : clicks.fields) {
    line += value == 0 ? "\t" : fmt::format("\t{:08x}", value);
  }
  return line;
}

}  // namespace pipewright
