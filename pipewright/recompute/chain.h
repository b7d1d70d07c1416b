#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// What one layer of a chain costs. Layers count from 1; layer l takes the output of layer l - 1
/// and its output has `output_bytes`.
struct ChainLayer {
  double forward = 0;  // time, in any unit
  double backward = 0;
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;  // all that its backward needs but its input; holds the output
  std::int64_t forward_temp_bytes = 0;  // while its forward runs
  std::int64_t backward_temp_bytes =
      0;                        // while its backward runs, the new input gradient among them
  std::int64_t idle_bytes = 0;  // of the output, what no backward needs: let go once the next
                                // layer, saved right after this one, has run
};

/// Layers one after the other, forward and then backward. The bytes of the chain's input are
/// nobody's here; the gradient of the last output, as large as that output, is there from the
/// beginning.
struct Chain {
  std::vector<ChainLayer> layers;

  int size() const { return static_cast<int>(layers.size()); }
  const ChainLayer& layer(int number) const { return layers[static_cast<std::size_t>(number - 1)]; }
};

/// Reads {"layers": [{"forward", "backward", "output_bytes", "saved_bytes", "forward_temp_bytes",
/// "backward_temp_bytes"}]}. `backward` may be left out for twice the forward, saved_bytes for the
/// output's, temporaries for 0. Throws InvalidArgument(`where`) naming the member.
Chain parse_chain(std::string_view json, std::string_view where);

/// What is done with a layer.
enum class LayerOp : std::uint8_t {
  kForwardDiscard,  // forward, and its input is dropped
  kForwardKeep,     // forward, and its input stays
  kForwardSave,     // forward, and all that the backward needs stays
  kBackward,
};
std::string_view op_name(LayerOp op);  // "forward_discard" ...

struct Operation {
  LayerOp op = LayerOp::kForwardSave;
  int layer = 1;

  friend bool operator==(const Operation&, const Operation&) = default;
};

/// Where the run ends that starts at `start`: the same operation on layer after layer, downwards
/// for backwards. For people and files, which say `forward_save 3-7`.
std::size_t run_end(const std::vector<Operation>& operations, std::size_t start);

/// What one part of a list takes.
struct PhaseCost {
  double time = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t held_bytes = 0;  // at its end
};

/// What a list of operations takes. Its three parts are a pipeline's F, R and B: up to the last
/// layer's first forward, from there to the first backward, and the rest. The gradient of the last
/// output counts in the third alone.
struct OperationsCost {
  double time = 0;
  std::int64_t peak_bytes = 0;
  PhaseCost forward;
  PhaseCost recompute;  // holds what the forward held where nothing is run again before B
  PhaseCost backward;
};

/// Runs through the list. Throws InvalidArgument where it cannot run: an input that is not there, a
/// backward out of order or of what was not saved, a layer left without its backward.
OperationsCost run_operations(const Chain& chain, const std::vector<Operation>& operations);

}  // namespace pipewright
