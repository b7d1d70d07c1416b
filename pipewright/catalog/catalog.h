#pragma once

#include "pipewright/config/known.h"

namespace pipewright::catalog {

/// The names that configs may use, with their parameters: models, data sources, schedules, losses.
/// app/ makes what they name.
config::Known known();

}  // namespace pipewright::catalog
