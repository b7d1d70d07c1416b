#pragma once

#include "pipewright/launch/options.h"
#include "pipewright/launch/sink.h"

namespace pipewright::launch {

/// Runs the command as `options` ask, until all of its ranks have ended, and returns the exit
/// status for the launcher: 0, the status of the rank that failed (128 + its signal where it was
/// killed), 128 + the signal that ended the launcher, 126 or 127 where the command cannot be
/// executed, 1 where other nodes could not be met or were lost, 2 where their options contradict
/// ours.
///
/// Meant for a program that does nothing else meanwhile: it takes this process's signals, and waits
/// for all of its children. Throws InvalidArgument for wrong options, TransportError where it
/// cannot listen or connect.
int launch(const LaunchOptions& options, Sink& sink);

}  // namespace pipewright::launch
