#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipewright/base/error.h"

namespace pipewright::config {

/// Where something of a config stands: in the file, or in an override.
struct Place {
  int override_number = -1;  // counts from 0; -1: in the file
  int line = 1;              // both count from 1
  int column = 1;
};

/// All that is wrong with a config. Each problem reads `file:line:column: key: what; what to do`,
/// or `--set key=value: key: ...`.
class ConfigError : public InvalidArgument {
 public:
  ConfigError(const std::string& file, std::vector<std::string> problems);

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

/// Collects what is wrong, so that all of it is told at once.
class Problems {
 public:
  Problems(std::string file, std::vector<std::string> overrides);

  /// `key` with its section; `words`: what is wrong, with its value, and what to do.
  void add(const Place& place, std::string_view key, std::string_view words);

  bool empty() const { return problems_.empty(); }
  /// In the order of the file, then of the overrides.
  std::vector<std::string> sorted() const;
  /// Throws ConfigError if there are any.
  void refuse() const;

 private:
  struct Problem {
    Place place;
    std::string text;
  };

  std::string show(const Place& place) const;

  std::string file_;
  std::vector<std::string> overrides_;
  std::vector<Problem> problems_;
};

}  // namespace pipewright::config
