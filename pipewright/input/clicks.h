#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/input/lines.h"

namespace pipewright {

/// One shown advertisement: whether it was clicked, and what was known before.
struct ClickRow {
  float label = 0;                   // 1: clicked
  std::vector<float> numeric;        // 0 where missing
  std::vector<std::int64_t> fields;  // by categorical field: 0 where missing, else 1 to buckets - 1
};

/// Rows of clicks. Calls may come from several threads at once.
class ClickSet {
 public:
  ClickSet() = default;
  ClickSet(const ClickSet&) = delete;
  ClickSet(ClickSet&&) = delete;
  ClickSet& operator=(const ClickSet&) = delete;
  ClickSet& operator=(ClickSet&&) = delete;
  virtual ~ClickSet() = default;

  virtual std::int64_t size() const = 0;
  virtual int num_numeric() const = 0;
  virtual int num_fields() const = 0;
  virtual std::int64_t buckets() const = 0;  // ids of every field are 0 to buckets() - 1
  virtual ClickRow row(std::int64_t number) const = 0;
};

/// Criteo's columns, or those of another file of that form.
struct CriteoOptions {
  int numeric = 13;
  int fields = 26;
  std::int64_t buckets = 100'000;  // of every field; at least 2, since 0 is for missing values
  bool logarithms = true;          // numbers x become sign(x) log(1 + |x|), as they span decades
};

/// Reads a line: label, numbers, fields, with a tab between. An empty number or field is missing.
/// Returns what is wrong with the line, and nothing where nothing is; then `row` is filled.
std::optional<std::string> parse_criteo(std::string_view line, const CriteoOptions& options,
                                        ClickRow* row);

/// The id of a field's text: 1 to buckets - 1. Two fields give the same text unrelated ids. Fixed
/// for all time: a saved model's embeddings depend on it.
std::int64_t field_id(int field, std::string_view text, std::int64_t buckets);

/// A line that could not be read.
struct BadLine {
  std::int64_t line = 0;  // from 1
  std::string why;
};

/// What was found in a file.
struct CriteoReport {
  std::int64_t rows = 0;           // that are used
  std::int64_t bad_rows = 0;       // that are left out
  std::vector<BadLine> first_bad;  // some of them

  /// For people: one line, and one for each of first_bad.
  std::string text() const;
};

/// A file in Criteo's form. It is gone through once when it is opened; bad rows are left out, and
/// counted. Rows are read when they are asked for.
class CriteoFile final : public ClickSet {
 public:
  /// Throws InvalidArgument where the file cannot be read, no row is good, or more than
  /// `most_bad_rows` are bad.
  explicit CriteoFile(const std::string& path, const CriteoOptions& options = {},
                      std::optional<std::int64_t> most_bad_rows = {});

  std::int64_t size() const override { return report_.rows; }
  int num_numeric() const override { return options_.numeric; }
  int num_fields() const override { return options_.fields; }
  std::int64_t buckets() const override { return options_.buckets; }
  ClickRow row(std::int64_t number) const override;

  const CriteoReport& report() const { return report_; }

 private:
  void look_at(std::int64_t number, std::string_view line);

  CriteoOptions options_;
  CriteoReport report_;
  std::vector<std::int64_t> bad_lines_;  // from 0, in order
  ClickRow scratch_;
  LineFile lines_;  // last: going through it fills the ones above
};

}  // namespace pipewright
