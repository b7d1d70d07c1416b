#pragma once

#include <vector>

#include "pipewright/config/known.h"

namespace pipewright::catalog {

/// Models of clicks, and where clicks come from.
std::vector<config::Component> click_models();
config::Component clicks();

}  // namespace pipewright::catalog
