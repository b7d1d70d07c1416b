#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pipewright::bench {

/// Where ranks run, if not all in this network.
struct RankPlace {
  std::string address;                 // under which all of them reach this process
  std::vector<std::string> odd_ranks;  // goes before the command of every second rank
};

/// Starts this very program as so many ranks, each with these arguments and `--out FILE`, and
/// returns what each wrote there. Throws Error with all they said where one fails.
std::vector<nlohmann::json> run_ranks(int ranks, const std::vector<std::string>& arguments,
                                      const RankPlace& where = {});

/// In a rank: leaves its result where run_ranks() finds it.
void leave_result(const std::string& out, const nlohmann::json& result);

}  // namespace pipewright::bench
