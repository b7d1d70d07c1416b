#pragma once

#include <torch/script.h>

#include <memory>
#include <string>
#include <vector>

#include "pipewright/graph/graph.h"

namespace pipewright {

/// Some nodes of a graph as a graph of their own that can be run. Constants they use come along.
/// Any thread may run it, several at a time.
class Subgraph {
 public:
  /// `nodes`: of one block, in their order. `outputs`: values that they make or take.
  Subgraph(const std::vector<torch::jit::Node*>& nodes,
           const std::vector<torch::jit::Value*>& outputs, const std::string& name);

  /// The values of the original graph that run() takes, in order of their first use.
  const std::vector<torch::jit::Value*>& inputs() const { return inputs_; }

  /// The inputs' values in, the outputs' values out. Nothing is optimized, so that bits do not
  /// depend on how often it ran.
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

  const torch::jit::Graph& ir() const { return *ir_; }

 private:
  struct Program;
  std::shared_ptr<torch::jit::Graph> ir_;
  std::vector<torch::jit::Value*> inputs_;
  std::shared_ptr<const Program> program_;
};

}  // namespace pipewright
