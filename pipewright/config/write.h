#pragma once

#include <string>

#include "pipewright/config/config.h"
#include "pipewright/config/known.h"

namespace pipewright::config {

/// Every key with its value, defaults too: reads back as the same Config.
std::string to_toml(const Config& config);

/// A config file for people: every key under its sentence; those that have their default are
/// commented out. `title` is its first line. Reads back as the same Config, and does so still when
/// a commented key is made a line of its own.
std::string commented_toml(const Config& config, const Known& known, const std::string& title);

/// The page docs/configuration.md: every section with its keys.
std::string reference_page(const Known& known);

}  // namespace pipewright::config
