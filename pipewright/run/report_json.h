#pragma once

#include <nlohmann/json.hpp>

namespace pipewright {

struct RunReport;

/// The report's facts, which the page and `--json` share.
nlohmann::ordered_json report_json(const RunReport& report);

}  // namespace pipewright
