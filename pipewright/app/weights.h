#pragma once

#include <functional>
#include <string>

#include "pipewright/config/config.h"
#include "pipewright/train/trainer.h"

namespace pipewright::app {

// Weights from elsewhere and for elsewhere; docs/models.md. Of several processes all call these.

/// Has the trainer start from model.weights, if set: under our names, or of gpt and bert under
/// Hugging Face's. A config.json beside them must agree with the model. `note` tells what of the
/// file, or of the model, has no counterpart. Throws InvalidArgument where the weights do not fit.
void load_weights(const config::Config& config, Trainer* trainer,
                  const std::function<void(const std::string&)>& note);

/// Throws InvalidArgument where model.export_to is there already: before the training, not after.
void check_export(const config::Config& config);

/// Writes the weights to model.export_to, if set; `first`: of the processes, which adds
/// config.json.
void export_weights(const config::Config& config, Trainer* trainer, bool first);

}  // namespace pipewright::app
