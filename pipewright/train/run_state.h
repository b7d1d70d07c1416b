#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipewright/train/training.h"

namespace pipewright {

/// What checkpoint.json says of a run beside its tensors, and the caller's own state:
///
///     {"pipewright": {"format": 1, "steps": 300, "updates": 150, "merged": 0, "seed": 1,
///                     "loss_scale": {...}, "learning_rate": 0.5, "strategy": {...},
///                     "optimizer_states": ["torch::optim::AdamParamState"]},
///      "caller": ...}
///
/// strategy and learning_rate are for people: a run that is resumed has its own.
nlohmann::json state_of(const Training& training, const nlohmann::json& callers);

/// Reads it back; `path` is for messages. Throws InvalidArgument.
RunPosition parse_position(const nlohmann::json& state, const std::string& path);
std::vector<std::string> parse_state_types(const nlohmann::json& state, const std::string& path);

}  // namespace pipewright
