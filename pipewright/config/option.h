#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "pipewright/config/value.h"

namespace pipewright::config {

enum class Type { kFlag, kInteger, kBytes, kNumber, kText, kIntegers, kNumbers, kTexts };

/// Which numbers are allowed; of a list, for each element.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is not allowed
  bool below_most = false;   // nor `most`
  bool plausible = false;    // `most` is far beyond use: told to those who pass it alone

  bool has(double value) const;
};

Range at_least(double least, double most = std::numeric_limits<double>::infinity());
/// At least `least`, and no more than there may ever be of ranks, layers or threads.
Range count(double least);
Range above(double least, double most = std::numeric_limits<double>::infinity());
/// From `least` to less than `most`: a share such as dropout.
Range from_to_below(double least, double most);

/// One of the texts that an option takes.
struct Choice {
  std::string name;
  std::string words = {};  // what it means; may be empty
};

/// One key: what it may hold, what it holds where it is not set, and what it is for. Reading,
/// checking, the reference and the file that `pipewright init` writes all come from this.
struct Option {
  std::string name;
  Type type = Type::kFlag;
  Value fallback = {};  // of the type; bytes are an int64
  Range range = {};
  std::vector<Choice> choices = {};  // of a text; empty: any text
  std::size_t length = 0;            // of a list; 0: any
  std::string zero = {};             // of an integer: the word for 0, "auto" say
  std::string words = {};            // one sentence
  /// Of a text, or of each element of a list of texts: what is wrong with its form and what to
  /// write, as "is no device; write cpu or cuda:0"; empty: nothing.
  std::string (*misformed)(const std::string& text) = nullptr;
};

// An option of each type, for those who declare parameters of models and data sources.
Option flag(std::string name, bool fallback, std::string words);
Option integer(std::string name, std::int64_t fallback, Range range, std::string words);
Option bytes(std::string name, std::int64_t fallback, Range range, std::string words);
Option number(std::string name, double fallback, Range range, std::string words);
Option text(std::string name, std::string fallback, std::string words);
Option choice(std::string name, std::string fallback, std::vector<Choice> choices,
              std::string words);

/// What to write for it: "a whole number from 1 to 8", "true or false", "a list of strings".
std::string wanted(const Option& option);
/// The same for one element of a list.
std::string wanted_element(const Option& option);
/// The same without bounds that nobody meets.
std::string usually_wanted(Option option);

/// A value of the option as TOML has it: bytes with a unit where they are whole ones, the word for
/// 0. Reads back as the same value.
std::string option_text(const Option& option, const Value& value);

}  // namespace pipewright::config
