#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <vector>

#include "pipewright/nn/tensors.h"

namespace pipewright {

// The backward of one segment: a stage's or a layer's forward for one micro-batch.
//
//     inputs --F--> outputs       whole:  B in one pass
//     (leaves)  ^                 split:  I gives the gradients that the stage before waits for,
//           parameters                    W, any time later, those of the parameters
//
// What they share:
// - `inputs` are distinct leaves (detach().requires_grad_()), or tensors that need no gradient.
//   Their gradients are returned, never stored in .grad, and keep the strides autograd gave them.
// - `outputs` may be inputs, views of them, parameters, scalars, or the same tensor twice. One that
//   needs no gradient, or whose entry in `output_gradients` (as many) is undefined, is left out.
// - Parameters' gradients are added to .grad, except those of `separate`: parameters that other
//   segments, perhaps on other threads, use too. Theirs are returned, .grad is not touched (and
//   hooks on them do not run).
// - A returned gradient is undefined where there is none, and may share memory with an output
//   gradient: read it, do not write into it.
// - A graph is gone through once: a second call on the same outputs throws. Any thread may call;
//   segments that run at the same time share nothing but parameters in `separate`.

/// Where a segment's outputs stand in its graph: it keeps the graph alive, not the outputs' values,
/// which may long be another stage's.
struct GraphEnds {
  GraphEnds() = default;
  GraphEnds(const Tensors& outputs);  // NOLINT: a list of outputs is what callers have
  GraphEnds(std::initializer_list<torch::Tensor> outputs) : GraphEnds(Tensors(outputs)) {}

  torch::autograd::edge_list edges;              // invalid where no gradient is needed
  std::vector<std::vector<std::int64_t>> sizes;  // of the outputs
};

struct BackwardResult {
  Tensors input_gradients;
  Tensors separate_gradients;  // as many as `separate`
};

/// The whole backward. Gradients that are moved in are freed when they have been used.
BackwardResult backward(const GraphEnds& outputs, Tensors output_gradients, const Tensors& inputs,
                        const Tensors& separate = {});

/// What a split backward still has to do for the weights. It holds the activations and gradients
/// needed for that; dropping it frees them.
class WeightHalf {
 public:
  struct Work;

  WeightHalf();
  explicit WeightHalf(std::unique_ptr<Work> work);
  ~WeightHalf();
  WeightHalf(WeightHalf&&) noexcept;
  WeightHalf& operator=(WeightHalf&&) noexcept;

  /// Adds the gradients of the parameters to .grad and returns those of `separate`. Once.
  Tensors run();

 private:
  std::unique_ptr<Work> work_;
};

struct InputHalf {
  Tensors input_gradients;
  WeightHalf weight_half;
};

/// The input half of the backward; the same bits as the whole one. Afterwards only what the weight
/// half needs is still held: the activations that feed weights and the gradients at those places.
///
/// Where no input needs a gradient (the first stage) this does nothing, and the weight half
/// everything. Where a node that feeds both an input and a weight cannot be run in two halves (a
/// custom torch::autograd::Function, a node with hooks, a weight written into part of an
/// activation), this does everything, and the weight half nothing but return the gradients of
/// `separate`.
InputHalf backward_input(const GraphEnds& outputs, Tensors output_gradients, const Tensors& inputs,
                         const Tensors& separate = {});

}  // namespace pipewright
