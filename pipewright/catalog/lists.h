#pragma once

#include <vector>

#include "pipewright/config/known.h"

namespace pipewright::catalog {

// The parts of known().
std::vector<config::Component> models();
std::vector<config::Component> data_sources();

}  // namespace pipewright::catalog
