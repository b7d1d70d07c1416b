#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pipewright::bench {

/// Starts this very program as so many ranks, each with these arguments and `--out FILE`, and
/// returns what each wrote there. Throws Error with all they said where one fails.
std::vector<nlohmann::json> run_ranks(int ranks, const std::vector<std::string>& arguments);

/// In a rank: leaves its result where run_ranks() finds it.
void leave_result(const std::string& out, const nlohmann::json& result);

}  // namespace pipewright::bench
