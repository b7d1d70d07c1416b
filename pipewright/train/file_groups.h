#pragma once

#include <compare>
#include <nlohmann/json.hpp>
#include <vector>

#include "pipewright/train/exchange.h"
#include "pipewright/train/snapshot.h"

namespace pipewright {

/// A file of tensors: of which layer, by which process.
struct FileGroup {
  std::size_t layer = 0;
  int writer = 0;

  auto operator<=>(const FileGroup&) const = default;
};

/// What a process tells the others of its snapshot, so that all number the files alike.
nlohmann::json offer_of(const Snapshot& snapshot);

/// The files of a part in the order of their numbers, from all offers: the same in every process.
std::vector<FileGroup> file_groups(Part part, const std::vector<nlohmann::json>& offers);

/// How long the process with the most to write may take, at the slowest.
double longest_write_seconds(const std::vector<nlohmann::json>& offers);

}  // namespace pipewright
