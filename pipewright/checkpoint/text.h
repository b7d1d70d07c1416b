#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pipewright {

/// A name from a file as a message shows it: in quotes, control characters as '?', long ones cut.
std::string shown(std::string_view name);

/// Parses a JSON text that was not necessarily written by us: besides what is no JSON, refuses
/// members that stand twice, bytes of 0 and nesting beyond 32. Throws InvalidArgument naming
/// `path`.
nlohmann::json parse_strict_json(std::string_view text, const std::string& path);

}  // namespace pipewright
