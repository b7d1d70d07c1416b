#pragma once

#include "pipewright/launch/message.h"
#include "pipewright/launch/options.h"

namespace pipewright::launch {

/// How the launcher with these options announces itself.
Hello hello_of(const LaunchOptions& options);

}  // namespace pipewright::launch
