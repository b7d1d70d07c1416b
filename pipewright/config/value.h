#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pipewright::config {

/// What a key of a config may hold. Numbers are finite, text is UTF-8.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                           std::vector<double>, std::vector<std::string>>;

/// The parameters of a model or of a data source by name. Whoever declared them knows their types:
/// asking for one that is not there, or as another type, is our mistake (InternalError).
class Values {
 public:
  void set(const std::string& name, Value value);
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }

  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // of a whole number too
  const std::string& text(std::string_view name) const;
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;  // of whole numbers too
  const std::vector<std::string>& texts(std::string_view name) const;

  const std::map<std::string, Value, std::less<>>& all() const { return values_; }
  bool operator==(const Values& other) const = default;

 private:
  const Value& at(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
};

/// The value as TOML has it: 3, 0.1, "text", [1, 2]. Reads back as the same value, but for an empty
/// list, of which TOML does not tell the type.
std::string toml_text(const Value& value);

/// The text as a TOML string, in quotes. The result has no line break and no control character.
std::string toml_quoted(std::string_view text);

/// The name as a TOML key: as it is where that is allowed, else in quotes.
std::string toml_key(std::string_view name);

}  // namespace pipewright::config
