#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pipewright/optim/optimizer.h"

namespace pipewright {

/// What an optimizer keeps for one parameter, as its own serialize() writes it: of any optimizer.
struct PackedState {
  std::string type;     // of the state's class
  std::string archive;  // bytes, in the host's memory
};

/// By the names that the state's class gives; numbers are tensors without dimensions (int64,
/// float64, bool). All in the host's memory.
using StateTensors = std::map<std::string, torch::Tensor>;

/// Takes what the optimizer keeps for a parameter; none where it keeps nothing.
std::optional<PackedState> pack_state(const torch::optim::Optimizer& optimizer,
                                      const torch::Tensor& parameter);

/// May run on any thread. Throws InvalidArgument naming the parameter for what is neither tensor
/// nor number.
StateTensors unpack_state(const PackedState& packed, const std::string& parameter);

using OptimizerState = std::unique_ptr<torch::optim::OptimizerParamState>;

/// A state for a parameter with these tensors, of the class that the factory's optimizers make. As
/// a fresh optimizer has none, one is made over a copy of the parameter and does a step with a
/// gradient of zeros. Throws InvalidArgument where the tensors are not those of the class.
OptimizerState make_state(const OptimizerFactory& factory, const std::string& name,
                          const torch::Tensor& parameter, const StateTensors& tensors);

/// What a fresh optimizer keeps for a parameter before its first step: mostly nothing, null.
OptimizerState first_state(const OptimizerFactory& factory, const std::string& name,
                           const torch::Tensor& parameter);

/// The name of a state's class.
std::string type_of(const torch::optim::OptimizerParamState& state);

/// The class of what the factory's optimizers keep for a parameter; empty where they keep nothing.
std::string state_type(const OptimizerFactory& factory, const std::string& name,
                       const torch::Tensor& parameter);

/// Replaces what the optimizer keeps for a parameter; null: by nothing.
void set_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
               OptimizerState state);

}  // namespace pipewright
