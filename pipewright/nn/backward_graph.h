#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "pipewright/nn/backward.h"

namespace pipewright {

// What the whole and the split backward share: autograd's graph of one segment. Included by
// backward.cpp alone.

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using NodePtr = decltype(Edge::function);  // a shared_ptr in 1.13, an intrusive_ptr in later ones

/// Where a run of the engine starts, and with which gradients.
struct Roots {
  edge_list edges;
  Tensors gradients;

  void add(Edge edge, torch::Tensor gradient) {
    edges.push_back(std::move(edge));
    gradients.push_back(std::move(gradient));
  }
};

/// The roots of the outputs that have a gradient and need one.
Roots find_roots(const GraphEnds& outputs, Tensors output_gradients);

/// The edge into the leaf's accumulator; invalid where the tensor needs no gradient.
edge_list leaf_edges(const Tensors& leaves);

/// Every node that the roots lead to, each after all those that it leads to itself.
std::vector<NodePtr> nodes_below(const edge_list& roots);

/// Gives the segment leaves of its own in place of those of `separate`, whose accumulators belong
/// to all the segments that use them. Returns the edges into the new leaves.
edge_list make_private(Roots& roots, const Tensors& separate);

/// Runs everything below `roots` and frees it: adds to the .grad of every leaf but `leaves`, which
/// must belong to this segment alone, and returns what arrived at those. The roots' gradients are
/// freed once they are used.
Tensors run_and_take(Roots roots, const edge_list& leaves);

}  // namespace pipewright
