#pragma once

#include <functional>
#include <string>

#include "pipewright/app/make.h"
#include "pipewright/train/strategy.h"

namespace pipewright::app {

/// The micro-batches and lanes of [auto_micro_batch], where it says something: measured with the
/// first batch of the data where `num` is "auto".
void choose_lanes(const config::Config& config, const DataSet& data, const Sequence& model,
                  const std::function<void(const std::string&)>& note, Strategy* strategy);

/// Samples a step takes: data.batch, or so many of them as there are micro-batches.
std::int64_t rows_a_step(const config::Config& config);

}  // namespace pipewright::app
