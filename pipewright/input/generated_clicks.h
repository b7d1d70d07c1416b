#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipewright/input/clicks.h"

namespace pipewright {

struct ClickLogOptions {
  std::int64_t rows = 0;
  int numeric = 4;           // at least 1; the first one counts, the others are noise
  int fields = 8;            // at least 2
  std::int64_t values = 20;  // of a field; even
  int interactions = 3;      // pairs of fields whose values count together alone
  double missing = 0.05;     // share of numbers and fields that are not there
  std::uint64_t seed = 1;
  /// Which rows of the log with that seed: those of training and of validation follow the same law
  /// and must not be the same.
  std::int64_t first_row = 0;
};

/// Clicks that a model can predict only by looking at two fields together. Every value of a field
/// is good or bad, half of them each, by the seed. Field 2i and field 2i + 1 raise the chance of a
/// click where both are good or both bad, for i below `interactions`; so neither of them says
/// anything by itself. The first number and the last field do by themselves, a little. The
/// interactions are what a sum over single features cannot learn.
class GeneratedClicks final : public ClickSet {
 public:
  /// Throws InvalidArgument for sizes that do not fit.
  explicit GeneratedClicks(const ClickLogOptions& options);

  std::int64_t size() const override { return options_.rows; }
  int num_numeric() const override { return options_.numeric; }
  int num_fields() const override { return options_.fields; }
  std::int64_t buckets() const override { return options_.values + 1; }
  ClickRow row(std::int64_t number) const override;

  /// The chance of a click that the row was drawn with: the best that any model can tell.
  double probability(const ClickRow& row) const;
  /// The same without the interactions: the best that a sum over single features can tell.
  double probability_without_interactions(const ClickRow& row) const;

  /// The row as a line of Criteo's form, without its end.
  std::string tsv_line(std::int64_t number) const;

 private:
  double single_part(const ClickRow& row) const;
  double together_part(const ClickRow& row) const;
  int goodness(int field, std::int64_t value) const;  // 1, -1; 0 where missing

  ClickLogOptions options_;
  std::vector<std::vector<int>> goodness_;  // by field and id
};

}  // namespace pipewright
