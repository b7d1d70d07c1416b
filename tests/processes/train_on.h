#pragma once

#include <string>

#include "tests/processes/worker.h"

namespace pipewright {

/// The worker "train_on" trains a small model with a rank a process, until something happens to it.
/// Its arguments: `life`, the deadline of signs of life; and, if wanted, `deadline`, of every wait;
/// `steps`; `replicas`; `schedule`; `address`, of the process; and a mischief: `what` happens at
/// the `rank` before or in its `step`:
///   layer   a layer throws "the fuse blew"
///   slow    a layer takes an hour
///   exit    std::exit(3); _exit: without any clean-up
///   return  it leaves with a goodbye
///   throw   the program around the trainer throws
inline constexpr const char* kTrainOn = "train_on";

/// What it trains, in this process with threads: the loss of the last step.
double last_loss_with_threads(int ranks, int steps);

/// The loss of the last step that a rank has done.
double last_loss(const Processes& processes, int rank);

/// Waits until all ranks have done a step. Throws what one says that ends before.
void wait_for_training(Processes& processes, int ranks);

/// The line of a rank's error.
std::string error_of(const Processes& processes, int rank);

}  // namespace pipewright
