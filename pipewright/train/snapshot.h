#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipewright/checkpoint/layout.h"
#include "pipewright/checkpoint/safetensors.h"
#include "pipewright/optim/optimizer_state.h"
#include "pipewright/train/training.h"

namespace pipewright {

/// What a merge under way has added up for a use of a parameter, in each replica: "head.weight/"
/// and this and the replica's number, beside the optimizer's own names.
inline constexpr std::string_view kMergedGradient = "merged_gradient.";
std::string merged_gradient_name(const std::string& use, int replica);

/// A layer's tensors at one moment, in the host's memory. Later changes of the model do not reach
/// it.
struct LayerSnapshot {
  using Tensors = std::vector<std::pair<std::string, torch::Tensor>>;

  Tensors weights;                                          // parameters and buffers
  Tensors gradients;                                        // of a merge under way
  std::vector<std::pair<std::string, PackedState>> states;  // by parameter

  bool has(Part part) const {
    return part == Part::kWeights ? !weights.empty() : !gradients.empty() || !states.empty();
  }
};

/// What a process puts into a checkpoint.
struct Snapshot {
  std::vector<LayerSnapshot> layers;  // by layer; those of other processes have nothing
  nlohmann::json state = {};          // of the run, and of the caller

  std::int64_t bytes() const;
};

/// A layer's use of a tied weight; null where it is none, and has its gradient in the parameter.
TiedUse* find_tied_use(const SharedModel& shared, std::size_t layer,
                       const torch::Tensor& parameter);

/// Copies what this process puts into a checkpoint, each stage's tensors on the thread of its rank.
/// Nobody's budget is charged for the copies. `weights_only`: without optimizer and merge.
Snapshot take_snapshot(Training* training, bool weights_only);

/// The classes of the optimizer's states in it; sorted.
std::vector<std::string> state_types(const Snapshot& snapshot);

/// A layer's tensors of one part as a file takes them; they live as long as `held`, into which what
/// had to be made for it goes, and the snapshot.
std::vector<TensorView> views_of(const LayerSnapshot& layer, Part part,
                                 std::vector<torch::Tensor>* held);

}  // namespace pipewright
