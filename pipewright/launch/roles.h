#pragma once

#include "pipewright/launch/options.h"
#include "pipewright/launch/sink.h"

namespace pipewright::launch {

// launch() for node 0, which decides for all, and for the others.
int run_first_node(const LaunchOptions& options, Sink& sink);
int run_other_node(const LaunchOptions& options, Sink& sink);

}  // namespace pipewright::launch
