#pragma once

#include <torch/script.h>

#include <memory>
#include <string>
#include <vector>

#include "pipewright/graph/graph.h"

namespace pipewright {

/// A method without calls, modules and tuples. See Graph.
struct FlatGraph {
  std::shared_ptr<torch::jit::Graph> ir;
  std::vector<std::string> inputs;
  std::vector<GraphAttribute> attributes;
  std::vector<torch::jit::Module> owners;  // by attribute: the module that has it
  std::vector<GraphNorm> norms;
};

/// Ties the module's parameters that share memory. Throws InvalidArgument, with the source's line,
/// for what cannot be made flat.
FlatGraph flatten(const torch::jit::Module& module, const std::string& method);

/// The batch norms of the graph whose counters it moves; takes the counting out of the graph.
void take_out_counters(FlatGraph* flat);

}  // namespace pipewright
