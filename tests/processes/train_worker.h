#pragma once

#include <map>
#include <string>

#include "tests/processes/worker.h"
#include "tests/train/test_models.h"

namespace pipewright {

/// What a run ends with: "losses", and every parameter and buffer by its name.
using TrainResult = std::map<std::string, torch::Tensor>;

/// Some steps of a test model as the arguments say, in this process or as one of several.
TrainResult train_as(const Arguments& arguments);

/// In a worker: leaves the result of its rank for the test. The worker "train" does so with that of
/// train_as().
void write_result(const TrainResult& result);

/// What rank `rank` ended with.
TrainResult read_result(const Processes& processes, int rank);

/// The arguments of a plain run; those of tests differ in some.
Arguments plain_run(const std::string& schedule);

}  // namespace pipewright
