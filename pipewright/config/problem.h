#pragma once

#include <map>
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

/// A mistake that shows only when model and data are there: a key with its section, what is wrong
/// and what to do. Places::located() adds file and line.
class KeyError : public InvalidArgument {
 public:
  KeyError(std::string key, std::string words);

  const std::string& key() const { return key_; }
  const std::string& words() const { return words_; }

 private:
  std::string key_;
  std::string words_;
};

/// Where the keys of a config stand, for what is found wrong later.
class Places {
 public:
  Places() = default;
  Places(std::string file, std::vector<std::string> overrides, std::map<std::string, Place> places);

  /// Of a key that is not set: where its section begins, or the file.
  Place of(const std::string& key) const;
  ConfigError located(const KeyError& error) const;

 private:
  std::string file_ = "the config";
  std::vector<std::string> overrides_;
  std::map<std::string, Place> places_;  // of keys by full name, and of sections
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
