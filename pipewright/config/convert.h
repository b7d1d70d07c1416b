#pragma once

#include <optional>
#include <string>

#include "pipewright/config/option.h"
#include "pipewright/config/tree.h"

namespace pipewright::config {

/// What a node means for an option; none where it does not fit, which `problems` then tells.
std::optional<Value> convert(const Node& node, const Option& option, const std::string& key,
                             Problems* problems);

/// The same for a key that nobody declared: as the type it is written in.
std::optional<Value> convert_undeclared(const Node& node, const std::string& key,
                                        Problems* problems);

}  // namespace pipewright::config
