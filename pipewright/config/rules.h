#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "pipewright/config/config.h"
#include "pipewright/config/known.h"

namespace pipewright::config {

/// Told for each rule that does not hold: the key it is about, what is wrong and what to do.
using Report = std::function<void(const std::string& key, const std::string& words)>;

/// What must hold of several keys together, and which must be set. Rules that need a key of `wrong`
/// (full names) are left out.
void check_rules(const Config& config, const Known& known, const std::set<std::string>& wrong,
                 const Report& report);

/// The same for a Config that was not read from a file: `key: what; what to do` each.
std::vector<std::string> conflicts(const Config& config, const Known& known);

}  // namespace pipewright::config
