#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pipewright/config/known.h"

namespace pipewright::catalog {

/// The names that configs may use, with their parameters: models, data sources, schedules, losses.
/// app/ makes what they name.
config::Known known();

/// A size that a paper made known, as parameters of one of the models.
struct PublishedSize {
  std::string model;
  std::string name;
  std::vector<std::pair<std::string, config::Value>> parameters;
};
const std::vector<PublishedSize>& published_sizes();

}  // namespace pipewright::catalog
