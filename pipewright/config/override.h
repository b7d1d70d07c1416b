#pragma once

#include <string>
#include <vector>

#include "pipewright/config/tree.h"

namespace pipewright::config {

/// Puts overrides, each `section.key=value`, into the tree in place of what stands there; of
/// two for one key the later one counts. A value is TOML; where that fails it is taken as a string,
/// so that `pipeline.schedule=gpipe` and `recompute.budget=8GiB` need no quotes, and several with
/// commas between are a list. What is no override goes to `problems`.
void apply_overrides(const std::vector<std::string>& overrides, Node* root, Problems* problems);

}  // namespace pipewright::config
