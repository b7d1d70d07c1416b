#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipewright/graph/graph.h"
#include "pipewright/graph/subgraph.h"

namespace pipewright {

/// Nodes of a graph as a module: a layer of a Sequence. Its parameters and buffers are the graph's,
/// in submodules named as there; so are its modes. The counters of its batch norms count
/// mini-batches, as DeferredBatchNorm does for stock modules.
class GraphLayer : public torch::nn::Module {
 public:
  /// `inputs`: the values that forward takes, in order; attributes of the graph are not among them.
  GraphLayer(const Graph& graph, Subgraph nodes, const std::vector<torch::jit::Value*>& inputs);

  /// Numbers travel as tensors of one element.
  Tensors forward(const Tensors& x);

 private:
  /// Where an input of the nodes comes from.
  struct Source {
    std::size_t input = 0;  // of forward
    c10::TypeKind type = c10::TypeKind::TensorType;
    torch::Tensor tensor = {};                // or: a parameter or buffer
    const torch::nn::Module* mode = nullptr;  // or: whose is_training() it is
  };

  Source bind(const Graph& graph, std::size_t attribute);
  void add_counters(const Graph& graph);
  /// Made where it is not there yet; "" is the layer itself.
  torch::nn::Module& submodule(const std::string& path);

  Subgraph nodes_;
  std::vector<Source> sources_;
  std::size_t num_inputs_ = 0;
};

}  // namespace pipewright
