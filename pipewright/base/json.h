#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Parses a JSON text. Throws InvalidArgument(`where`) with line and column of the first mistake.
nlohmann::json parse_json(std::string_view text, std::string_view where);

/// A JSON object with its path in the file, for reading members with errors that name them.
class JsonObject {
 public:
  /// Throws InvalidArgument(`where`) unless `value` is an object. Both must outlive this.
  JsonObject(const nlohmann::json& value, std::string_view where, std::string path);

  /// Throws InvalidArgument naming every member that is none of `known`, so that a misspelt one is
  /// not taken for absent.
  void refuse_unknown(std::initializer_list<std::string_view> known) const;

  bool has(std::string_view name) const;
  const nlohmann::json& array(std::string_view name) const;
  std::string string(std::string_view name) const;
  std::string string_or(std::string_view name, std::string_view otherwise) const;
  double non_negative(std::string_view name) const;  // finite
  double non_negative_or(std::string_view name, double otherwise) const;
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  std::vector<std::int64_t> integers(std::string_view name, std::int64_t least,
                                     std::int64_t most) const;
  std::vector<std::string> strings(std::string_view name) const;
  std::int64_t integer_or(std::string_view name, std::int64_t least, std::int64_t most,
                          std::int64_t otherwise) const;

 private:
  const nlohmann::json& member(std::string_view name) const;
  std::int64_t whole_number(const nlohmann::json& value, std::string_view name, std::int64_t least,
                            std::int64_t most) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view why) const;

  const nlohmann::json* value_;
  std::string_view where_;
  std::string path_;
};

}  // namespace pipewright
