#include "pipewright/train/file_groups.h"

#include <algorithm>
#include <string>

namespace pipewright {
namespace {

using nlohmann::json;

/// A disk may be this slow before a process that writes is given up.
constexpr double kLeastBytesPerSecond = 10e6;

}  // namespace

json offer_of(const Snapshot& snapshot) {
  json value = {{"bytes", snapshot.bytes()}, {"types", state_types(snapshot)}};
  for (const Part part : kAllParts) {
    json& layers = value[std::string(part_name(part))] = json::array();
    for (std::size_t i = 0; i < snapshot.layers.size(); ++i) {
      if (snapshot.layers[i].has(part)) layers.push_back(i);
    }
  }
  return value;
}

std::vector<FileGroup> file_groups(Part part, const std::vector<json>& offers) {
  std::vector<FileGroup> groups;
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    for (const json& layer : offers[rank].at(std::string(part_name(part))))
      groups.push_back({layer.get<std::size_t>(), static_cast<int>(rank)});
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

double longest_write_seconds(const std::vector<json>& offers) {
  double most = 0;
  for (const json& one : offers) most = std::max(most, one.at("bytes").get<double>());
  return most / kLeastBytesPerSecond;
}

}  // namespace pipewright
