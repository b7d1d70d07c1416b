#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipewright/config/config.h"
#include "pipewright/config/known.h"
#include "pipewright/config/problem.h"

namespace pipewright::config {

/// Reads a config file and checks all of it: unknown keys, wrong types, values out of range,
/// combinations that make no sense. Throws ConfigError (problem.h) with everything that is wrong,
/// each with its line and what to do.
///
/// `overrides`: each `section.key=value`, see override.h; checked by the same rules. `places`: gets
/// where the keys stand.
Config read(const std::string& path, const std::vector<std::string>& overrides, const Known& known,
            Places* places = nullptr);

/// The same of a text; `file` is what messages call it. Safe for any bytes.
Config read_text(std::string_view text, const std::string& file,
                 const std::vector<std::string>& overrides, const Known& known,
                 Places* places = nullptr);

/// The folder of a run of the config that stands in `file`: log.dir, or runs/ and the file's name.
std::string run_folder(const Config& config, const std::string& file);

}  // namespace pipewright::config
